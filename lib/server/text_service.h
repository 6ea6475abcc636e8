// Makes texts for many clients at once: a thread runs the engine, and each request has a channel
// through which its text arrives. Data path: api_request.h -> [here] -> engine, and back -> HTTP.
// Threads: any thread may call submit, cancel and counts; the engine's thread calls the runner,
// codec and sampler.
#pragma once

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
#include "base/machine/small_thread.h"
#include "decoder/codec/text_codec.h"
#include "decoder/codec/written_text.h"
#include "decoder/engine/engine.h"
#include "server/api_request.h"
#include "server/service_failure.h"
#include "server/text_channel.h"

namespace dslaunch::server {

// A text to make.
struct TextRequest {
    std::vector<int32_t> prompt;
    bool goes_on = false;  // the answer continues the text of `prompt`
    int64_t tokens_max = 0;
    decoder::SamplingOptions sampling;
    std::vector<std::string> stops;
    std::vector<int32_t> more_ends;  // in addition to the service's end tokens
    bool ignores_end = false;        // the service's end tokens do not end the text
};

// Numbers since the start, for reports.
struct ServiceCounts {
    decoder::EngineCounts engine;
    int64_t requests = 0, refused = 0, cancelled = 0, finished = 0;
    double step_seconds = 0;         // time for which the engine has computed
    double first_token_seconds = 0;  // time until first tokens, summed over requests
    int64_t first_tokens = 0;
};

// Returns the error for requests whose text is not finished because the service is ending. WHY is
// the service's failure, or empty if it did not fail.
[[nodiscard]] ApiError service_ends(const std::string& why);

// A function that the service calls while it has nothing to do, for example to inform ranks that
// wait for batches. The service calls it with true every `interval`, and with false at the end
// unless the service failed.
struct IdleCall {
    std::function<void(bool goes_on)> call;
    Duration interval = std::chrono::seconds{5};
};

// Owns the engine and its thread.
class TextService {
  public:
    using Ticket = std::shared_ptr<TextChannel>;  // shared by the service and the reader

    // RUNNER and CODEC must outlive this object. END_TOKENS end every text whose request
    // does not ignore them.
    TextService(decoder::BatchRunner& runner, const decoder::TextCodec& codec,
                decoder::EngineOptions options, std::vector<int32_t> end_tokens, IdleCall idle);
    TextService(const TextService&) = delete;
    TextService& operator=(const TextService&) = delete;
    // Ends all texts that are not finished.
    ~TextService();

    // Starts a text. Returns an error if the queue is full (429), or if the service has failed or
    // is ending (503). Throws Error{kInput} or Error{kUsage} in the same cases as Engine::add().
    [[nodiscard]] std::variant<Ticket, ApiError> submit(TextRequest request);
    // Cancels a text whose reader has left: no more of it is computed, and its memory is freed
    // soon.
    void cancel(const Ticket& ticket) noexcept;

    // Returns the largest number of texts that may be running or waiting at once.
    [[nodiscard]] int64_t texts_max() const { return options_.sequences_max + options_.queue_max; }
    // Returns the counts after the last step.
    [[nodiscard]] ServiceCounts counts() const;
    // Ends all texts that are not finished, and accepts no more. Any thread.
    void end() noexcept;
    // Returns why the service has failed; empty if it runs or was ended by end().
    [[nodiscard]] std::string failure() const { return failure_.text(); }
    // Returns the failure as the exception that was thrown; null if failure() is empty.
    [[nodiscard]] std::exception_ptr error() const { return failure_.error(); }

  private:
    struct Text {
        std::shared_ptr<TextChannel> channel;
        decoder::WrittenText written;
        TimePoint submitted;
        bool has_begun = false;
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

    const decoder::TextCodec& codec_;
    decoder::EngineOptions options_;
    std::vector<int32_t> end_tokens_;
    IdleCall idle_;
    ServiceFailure failure_;
    // Only the engine's thread uses the next two members.
    decoder::Engine engine_;
    Texts texts_;

    mutable std::mutex mutex_;  // guards all members below
    std::condition_variable changed_;
    std::list<Arrival> arrivals_;
    bool has_reader_left_ = false;
    int64_t open_ = 0;  // texts that have not ended
    ServiceCounts counts_;
    bool is_ending_ = false;
    SmallThread thread_;  // started last, since it uses the other members
};

}  // namespace dslaunch::server
