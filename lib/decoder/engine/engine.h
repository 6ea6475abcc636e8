// Continuous batching: many requests share the steps of one decoder. Each step computes the next
// token of every running sequence. Rows that are left in the step compute positions of prompts. A
// sequence joins when its pages fit in the cache and leaves when it has ended. If the cache is
// full, the sequence that joined last frees its pages and computes its text again later (vLLM,
// arXiv:2309.06180). Data path: requests -> [here] -> batches -> decoder -> sampler -> tokens. One
// thread; it blocks only in the decoder.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "decoder/decode/batch.h"
#include "decoder/engine/page_pool.h"
#include "decoder/engine/request.h"
#include "decoder/sample/sampler.h"

namespace dslaunch::decoder {

using RequestId = int64_t;

// The reason why a text ends, set by the engine or by the code that reads its tokens.
enum class TextEnd {
    kNone,      // the text has not ended
    kStop,      // the last token is in end_tokens, or a stop text occurred
    kLength,    // tokens_max tokens were made
    kContext,   // the model or the cache has no more positions
    kBroken,    // logits are not finite, so there is no token (kBrokenLogits)
    kNoMemory,  // memory ran out
    kFailed,    // the service has failed or is ending
};
// Returns "stop" or "length", the names of the reasons in OpenAI's protocol; null if the text has
// not ended or has failed.
[[nodiscard]] const char* end_name(TextEnd end);

// One token that a step made.
struct MadeToken {
    RequestId request = 0;
    int32_t token = 0;
    TextEnd end = TextEnd::kNone;  // if it is not kNone, the request was removed
};

// The limits of an engine.
struct EngineOptions {
    int64_t sequences_max = 64;  // sequences that run at once
    int64_t queue_max = 256;     // requests that wait
};

// The state of an engine, for reports.
struct EngineCounts {
    int64_t running = 0, waiting = 0;
    int64_t pages_used = 0, pages = 0;
    int64_t prompt_tokens = 0, made_tokens = 0;  // since the start
    int64_t steps = 0, preempted = 0;
};

// The engine that runs the requests of one process. Requests are numbered from 1.
class Engine {
  public:
    // RUNNER must outlive this object.
    Engine(BatchRunner& runner, const EngineOptions& options);

    // Returns true if the queue has room for another request.
    [[nodiscard]] bool has_room() const;
    // Throws the errors of check_request(). Any thread.
    void check(const Request& request) const;
    // Adds REQUEST to the queue. Throws the errors of check(). REQUIRES: has_room(), tokens_max >
    // 0.
    RequestId add(Request request);
    // Removes the request and frees its pages. Ignores a request that is unknown or has ended,
    // because a request may end before its owner cancels it.
    void cancel(RequestId id);

    // Returns true if no request runs or waits.
    [[nodiscard]] bool is_idle() const { return running_.empty() && waiting_.empty(); }
    // Computes one batch. Returns the tokens made. If it throws, clear() must be called next.
    // REQUIRES: not is_idle().
    [[nodiscard]] std::vector<MadeToken> step();
    // Returns false if a batch failed while it was computed. Other ranks are then blocked in this
    // batch, and no other batch can be computed.
    [[nodiscard]] bool can_go_on() const { return !runner_.is_stuck(); }
    // Removes all requests and frees their pages. Allocates no memory.
    void clear() noexcept;

    // Returns the counts at this moment.
    [[nodiscard]] EngineCounts counts() const;

  private:
    struct Sequence {
        RequestId id = 0;
        std::vector<int32_t> text;  // prompt and made tokens
        int64_t computed = 0;       // positions whose keys and values are in the cache
        int64_t prompt_numel = 0;   // tokens in the prompt
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

    BatchRunner& runner_;
    EngineOptions options_;
    PagePool pool_;
    Sequences running_;  // in the order in which they were admitted
    Sequences waiting_;
    RequestId next_id_ = 1;
    EngineCounts counts_;
};

}  // namespace dslaunch::decoder
