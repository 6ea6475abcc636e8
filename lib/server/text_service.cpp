#include "server/text_service.h"

#include <new>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace dslaunch::server {

namespace {

// The stack size of the engine's thread. It is the usual size for a main thread, and the decoder
// needs no more than other programs.
constexpr size_t kStackBytes = size_t{8} << 20;

}  // namespace

ApiError service_ends(const std::string& why) {
    return {503, why.empty() ? "the server ends" : "the server ends: " + why, ""};
}

TextService::TextService(decoder::BatchRunner& runner, const decoder::TextCodec& codec,
                         decoder::EngineOptions options, std::vector<int32_t> end_tokens,
                         IdleCall idle)
    : codec_(codec),
      options_(options),
      end_tokens_(std::move(end_tokens)),
      idle_(std::move(idle)),
      engine_(runner, {options.sequences_max, options.sequences_max + options.queue_max}),
      thread_([this] { run(); }, kStackBytes) {}

TextService::~TextService() {
    end();
    thread_.join();
}

void TextService::end() noexcept {
    {
        const std::lock_guard lock(mutex_);
        is_ending_ = true;
    }
    changed_.notify_one();
}

std::variant<TextService::Ticket, ApiError> TextService::submit(TextRequest request) {
    DSL_CHECK(request.tokens_max > 0, "no token is wanted");
    // All steps that may fail come before `++open_`. If a step failed after it, `open_` would count
    // a text that never starts.
    std::vector<int32_t> ends = std::move(request.more_ends);
    if (!request.ignores_end) ends.insert(ends.end(), end_tokens_.begin(), end_tokens_.end());
    decoder::Request asked{std::move(request.prompt), request.tokens_max, request.sampling,
                           std::move(ends)};
    engine_.check(asked);
    const std::span<const int32_t> before(asked.prompt);
    auto stream = codec_.stream(before.first(request.goes_on ? before.size() : 0));
    std::list<Arrival> arrival;
    arrival.push_back({std::move(asked),
                       {std::make_shared<TextChannel>(),
                        {std::move(stream), std::move(request.stops)},
                        SystemClock().now(),
                        false}});
    Ticket ticket = arrival.front().text.channel;
    {
        const std::lock_guard lock(mutex_);
        ++counts_.requests;
        // Failures are recorded before end_all() runs. If no failure is seen here, end_all() comes
        // later and will also end this text.
        const std::string failure = failure_.text();
        const bool ends = is_ending_ || !failure.empty();
        if (ends || open_ >= texts_max()) {
            ++counts_.refused;
            if (ends) return service_ends(failure);
            return ApiError{429, "the queue is full: try again later", ""};
        }
        ++open_;
        arrivals_.splice(arrivals_.end(), arrival);
    }
    changed_.notify_one();
    return ticket;
}

void TextService::cancel(const Ticket& ticket) noexcept {
    ticket->leave();
    {
        const std::lock_guard lock(mutex_);
        has_reader_left_ = true;
    }
    changed_.notify_one();
}

ServiceCounts TextService::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

void TextService::forget(Texts::iterator text) {
    engine_.cancel(text->first);
    texts_.erase(text);
    const std::lock_guard lock(mutex_);
    --open_;
}

// Passes new requests to the engine, and drops texts whose readers have left.
void TextService::take_in() {
    std::list<Arrival> taken;
    bool has_left = false;
    {
        const std::lock_guard lock(mutex_);
        has_left = std::exchange(has_reader_left_, false);
        if (has_left) {
            const auto gone = static_cast<int64_t>(arrivals_.remove_if(
                [](const Arrival& arrival) { return arrival.text.channel->has_left(); }));
            counts_.cancelled += gone;
            open_ -= gone;
        }
        taken.splice(taken.end(), arrivals_);
    }
    for (auto at = texts_.begin(); has_left && at != texts_.end();) {
        const auto text = at++;
        if (!text->second.channel->has_left()) continue;
        forget(text);
        const std::lock_guard lock(mutex_);
        ++counts_.cancelled;
    }
    for (Arrival& arrival : taken) admit(arrival);
}

void TextService::admit(Arrival& arrival) {
    const std::shared_ptr<TextChannel> channel = arrival.text.channel;
    try {
        // The entry for the text is allocated before the engine gets the request, so that nothing
        // can fail after that.
        Texts place;
        place.emplace(0, std::move(arrival.text));
        auto node = place.extract(place.begin());
        node.key() = engine_.add(std::move(arrival.request));
        texts_.insert(std::move(node));
    } catch (const std::bad_alloc&) {
        channel->end(TextEnd::kNoMemory);
        const std::lock_guard lock(mutex_);
        --open_;
    }
}

void TextService::deliver(const decoder::MadeToken& made) {
    const auto found = texts_.find(made.request);
    DSL_CHECK(found != texts_.end(), "a token for nobody");
    Text& text = found->second;
    if (!std::exchange(text.has_begun, true)) {
        const std::lock_guard lock(mutex_);
        counts_.first_token_seconds += to_milliseconds(SystemClock().now() - text.submitted) / 1000;
        ++counts_.first_tokens;
    }
    TextEnd end = TextEnd::kNoMemory;
    try {
        TextPiece piece = text.written.push(made);
        if (piece.end == TextEnd::kBroken)
            log_error("serve", "a text was stopped: {}", decoder::kBrokenLogits);
        const TextEnd told = piece.end;
        text.channel->push(std::move(piece));
        end = told;
    } catch (const std::bad_alloc&) {
        text.channel->end(end);
    }
    if (end == TextEnd::kNone) return;
    forget(found);
    const std::lock_guard lock(mutex_);
    ++counts_.finished;
}

void TextService::step() {
    const TimePoint begin = SystemClock().now();
    try {
        const std::vector<decoder::MadeToken> made = engine_.step();
        for (const decoder::MadeToken& token : made) deliver(token);
    } catch (const std::bad_alloc&) {
        // Other ranks are blocked in the middle of the batch, so that another batch cannot be
        // started.
        if (!engine_.can_go_on()) throw;
        lose_texts();
    }
    const double seconds = to_milliseconds(SystemClock().now() - begin) / 1000;
    const std::lock_guard lock(mutex_);
    counts_.step_seconds += seconds;
    counts_.engine = engine_.counts();
}

// Ends all texts: a step that ran out of memory cannot be repeated, since it is unknown how much of
// it was done.
void TextService::lose_texts() noexcept {
    engine_.clear();
    for (auto& [id, text] : texts_) text.channel->end(TextEnd::kNoMemory);
    const std::lock_guard lock(mutex_);
    open_ -= std::ssize(texts_);
    texts_.clear();
}

void TextService::end_all(TextEnd end) noexcept {
    for (auto& [id, text] : texts_) text.channel->end(end);
    texts_.clear();
    const std::lock_guard lock(mutex_);
    for (Arrival& arrival : arrivals_) arrival.text.channel->end(end);
    arrivals_.clear();
    open_ = 0;
}

void TextService::serve() {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            counts_.engine = engine_.counts();
            const auto has_work = [&] {
                return is_ending_ || !arrivals_.empty() || has_reader_left_;
            };
            if (engine_.is_idle()) changed_.wait_for(lock, idle_.interval, has_work);
            if (is_ending_) break;
        }
        take_in();
        if (engine_.is_idle()) {
            idle_.call(true);
        } else {
            step();
        }
    }
    idle_.call(false);
}

void TextService::run() {
    try {
        serve();
    } catch (const std::exception& error) {
        failure_.record(error);
    }
    end_all(TextEnd::kFailed);
}

}  // namespace dslaunch::server
