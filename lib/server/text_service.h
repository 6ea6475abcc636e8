// Texts for many clients at once: a thread runs the engine, and each request has a channel in which
// its text comes. Data path: api_request.h -> [here] -> engine, and back -> HTTP. Threads: submit,
// cancel and counts by any; the engine's thread calls the runner, codec and sampler.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/small_thread.h"
#include "decoder/codec/text_codec.h"
#include "decoder/codec/written_text.h"
#include "decoder/engine/engine.h"
#include "server/api_request.h"

namespace dslaunch::server {

struct TextRequest {
    std::vector<int32_t> prompt;
    bool goes_on = false;  // the text continues the text of `prompt`
    int64_t tokens_max = 0;
    decoder::SamplingOptions sampling;
    std::vector<std::string> stops;
    std::vector<int32_t> more_ends;  // beside the service's end tokens
    bool ignores_end = false;        // those do not end it
};

using decoder::TextEnd;
using decoder::TextPiece;

// The text of one request as it comes. Its pieces join while nobody reads, so that a slow reader
// takes memory for its text alone. Threads: the service writes, one other reads.
class TextChannel {
  public:
    // Returns the text since the last call; waits for LIMIT at most. Nothing: no more came.
    [[nodiscard]] std::optional<TextPiece> next(Duration limit);
    void push(TextPiece piece);
    // Ends the text with REASON; takes no memory.
    void end(TextEnd reason) noexcept;
    // Says that its reader is gone.
    void leave() noexcept { left_ = true; }
    [[nodiscard]] bool left() const { return left_; }

  private:
    std::atomic<bool> left_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<TextPiece> waiting_;
};

struct ServiceCounts {
    decoder::EngineCounts engine;
    int64_t requests = 0, refused = 0, cancelled = 0, finished = 0;
    double step_seconds = 0;         // that the engine has computed
    double first_token_seconds = 0;  // waited for first tokens, all requests together
    int64_t first_tokens = 0;
};

// Returns the error of texts that the service's end leaves unmade. WHY: empty, or its failure.
[[nodiscard]] ApiError service_ends(const std::string& why);

class TextService {
  public:
    using Ticket = std::shared_ptr<TextChannel>;  // shared by the service and the reader

    // RUNNER and CODEC must outlive this. IDLE is called each IDLE_INTERVAL while there is nothing
    // to do, and at the end with false: it tells ranks that wait for batches.
    TextService(decoder::StepRunner& runner, const decoder::TextCodec& codec,
                decoder::EngineOptions options, std::vector<int32_t> end_tokens,
                std::function<void(bool goes_on)> idle,
                Duration idle_interval = std::chrono::seconds{5});
    TextService(const TextService&) = delete;
    TextService& operator=(const TextService&) = delete;
    // Ends all texts that are under way.
    ~TextService();

    // Returns an error if the queue is full (429), or the service has failed or ends (503). Throws
    // Error{kInput} or Error{kUsage} as Engine::add() does.
    [[nodiscard]] std::variant<Ticket, ApiError> submit(TextRequest request);
    // Gives up a text whose reader is gone: it is computed no further, and its memory is free soon.
    void cancel(const Ticket& ticket) noexcept;

    // Returns the most texts that may be under way or wait at once.
    [[nodiscard]] int64_t texts_max() const { return options_.sequences_max + options_.queue_max; }
    [[nodiscard]] ServiceCounts counts() const;
    // Ends all texts that are under way, and takes no more. Any thread.
    void end() noexcept;
    // Returns why the service computes no more; empty: it does, or it was ended.
    [[nodiscard]] std::string failure() const;
    // Returns the same as it was thrown; null where failure() is empty.
    [[nodiscard]] std::exception_ptr error() const;

  private:
    struct Text {
        std::shared_ptr<TextChannel> channel;
        decoder::WrittenText written;
        TimePoint submitted;
        bool begun = false;
    };
    struct Arrival {
        decoder::Request request;
        Text text;
    };
    using Texts = std::map<decoder::RequestId, Text>;

    void run();
    void serve();
    void take_in();
    void admit(Arrival& arrival);
    void step();
    void deliver(const decoder::MadeToken& made);
    void forget(Texts::iterator text);
    void lose_texts() noexcept;
    void end_all(TextEnd end) noexcept;
    void fail_with(const std::exception& error) noexcept;

    const decoder::TextCodec& codec_;
    decoder::EngineOptions options_;
    std::vector<int32_t> end_tokens_;
    std::function<void(bool)> idle_;
    Duration idle_interval_;
    // The engine's thread alone uses these.
    decoder::Engine engine_;
    Texts texts_;

    mutable std::mutex mutex_;  // guards all that follows
    std::condition_variable changed_;
    std::list<Arrival> arrivals_;
    bool reader_left_ = false;
    int64_t open_ = 0;  // texts that have not ended
    ServiceCounts counts_;
    std::string failure_;
    std::exception_ptr error_;
    bool ending_ = false;
    SmallThread thread_;  // started last
};

}  // namespace dslaunch::server
