// Continuous batching: many requests share the steps of one decoder. Each step computes the next
// token of every running sequence, and as many rows of waiting prompts as fit beside them; a
// sequence joins when its pages fit and leaves when it has ended. If the cache runs out, the
// sequence that came last gives its pages back and computes its text again later (vLLM,
// arXiv:2309.06180). Data path: requests -> [here] -> batches -> decoder -> sampler -> tokens. One
// thread; it does not block but for the decoder.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "decoder/decode/batch.h"
#include "decoder/sample/sampler.h"

namespace dslaunch::decoder {

using RequestId = int64_t;

struct Request {
    std::vector<int32_t> prompt;  // at least one token, each in the vocabulary
    int64_t tokens_max = 0;       // tokens to make at most
    SamplingOptions sampling;
    std::vector<int32_t> end_tokens;  // each ends the text
};

// The reason why a text ends: the engine decides, or the reader of its tokens does.
enum class TextEnd {
    kNone,      // goes on
    kStop,      // the last token is one of end_tokens, or a stop text has come
    kLength,    // tokens_max are made
    kContext,   // the model sees no more positions, or the cache holds no more
    kBroken,    // its logits are not all finite: there is no token, see kBrokenLogits
    kNoMemory,  // no memory was left to go on with it
    kFailed,    // its maker has failed, or ends
};
// Returns "stop" or "length", as OpenAI's protocol names an end; null if it goes on or has failed.
[[nodiscard]] const char* end_name(TextEnd end);

struct MadeToken {
    RequestId request = 0;
    int32_t token = 0;
    TextEnd end = TextEnd::kNone;  // the request is forgotten unless it is kNone
};

struct EngineOptions {
    int64_t sequences_max = 64;  // that run at once
    int64_t queue_max = 256;     // requests that wait
};

struct EngineCounts {
    int64_t running = 0, waiting = 0;
    int64_t pages_used = 0, pages = 0;
    int64_t prompt_tokens = 0, made_tokens = 0;  // since the start
    int64_t steps = 0, preempted = 0;
};

// Pages of the cache of keys and values, as numbers: a sequence has a list of pages, the pool has
// the rest. The decoder alone knows the memory of a page. One thread at a time.
class PagePool {
  public:
    explicit PagePool(int32_t pages);

    [[nodiscard]] int64_t pages() const { return pages_; }
    [[nodiscard]] int64_t pages_free() const { return std::ssize(free_); }

    // Adds pages to LIST until it holds POSITIONS. Returns false and leaves it if too few are free.
    [[nodiscard]] bool grow(std::vector<int32_t>& list, int64_t positions);
    // Takes back the pages of LIST, which is empty then.
    void give_back(std::vector<int32_t>& list);

  private:
    int64_t pages_;
    std::vector<int32_t> free_;  // the page that was given back last is lent first
};

class Engine {
  public:
    // RUNNER must outlive this.
    Engine(StepRunner& runner, const EngineOptions& options);

    // Returns true if another request may wait.
    [[nodiscard]] bool has_room() const;
    // Throws Error{kInput} for a prompt that is empty, holds a token outside the vocabulary, or
    // leaves no room in the context or in the cache; Error{kUsage} for sampling that is out of
    // range. Any thread.
    void check(const Request& request) const;
    // Throws as check(). REQUIRES: has_room(), tokens_max > 0.
    RequestId add(Request request);
    // Forgets the request and frees its pages. Ignores unknown requests: they ended meanwhile.
    void cancel(RequestId id);

    [[nodiscard]] bool idle() const { return running_.empty() && waiting_.empty(); }
    // Computes one batch. Returns the tokens made. When it throws, clear() must follow. REQUIRES:
    // not idle().
    [[nodiscard]] std::vector<MadeToken> step();
    // Returns false if a batch was begun and failed, and others wait in the middle of it.
    [[nodiscard]] bool can_go_on() const { return !runner_.is_stuck(); }
    // Forgets all requests; their pages are free. Takes no memory.
    void clear() noexcept;

    [[nodiscard]] EngineCounts counts() const;

  private:
    struct Sequence {
        RequestId id = 0;
        std::vector<int32_t> text;  // prompt and made tokens
        int64_t computed = 0;       // positions whose keys and values are in the cache
        int64_t prompt_numel = 0;   // tokens of `text` when it was last begun
        int64_t tokens_left = 0;
        std::vector<int32_t> end_tokens;
        std::vector<int32_t> pages;
        Sampler sampler;
    };
    using Sequences = std::list<Sequence>;

    void admit();
    void preempt_last();
    [[nodiscard]] Batch next_batch(std::vector<Sequence*>& owners);
    [[nodiscard]] TextEnd end_of(const Sequence& sequence) const;

    StepRunner& runner_;
    EngineOptions options_;
    PagePool pool_;
    Sequences running_;  // in the order in which they came
    Sequences waiting_;
    RequestId next_id_ = 1;
    EngineCounts counts_;
};

}  // namespace dslaunch::decoder
