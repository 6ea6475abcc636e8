#include "server/text_service.h"

#include <new>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace dslaunch::server {

namespace {

// A decoder's own calls go as deep as the rest of a program's.
constexpr size_t kStackBytes = size_t{8} << 20;

}  // namespace

ApiError service_ends(const std::string& why) {
    return {503, why.empty() ? "the server ends" : "the server ends: " + why, ""};
}

std::optional<TextPiece> TextChannel::next(Duration limit) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, limit, [&] { return waiting_.has_value(); });
    return std::exchange(waiting_, std::nullopt);
}

void TextChannel::push(TextPiece piece) {
    {
        const std::lock_guard lock(mutex_);
        if (waiting_) {
            waiting_->text += piece.text;
            waiting_->tokens += piece.tokens;
            waiting_->end = piece.end;
        } else {
            waiting_ = std::move(piece);
        }
    }
    changed_.notify_one();
}

void TextChannel::end(TextEnd reason) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (!waiting_) waiting_.emplace();
        waiting_->end = reason;
    }
    changed_.notify_one();
}

TextService::TextService(decoder::StepRunner& runner, const decoder::TextCodec& codec,
                         decoder::EngineOptions options, std::vector<int32_t> end_tokens,
                         std::function<void(bool)> idle, Duration idle_interval)
    : codec_(codec),
      options_(options),
      end_tokens_(std::move(end_tokens)),
      idle_(std::move(idle)),
      idle_interval_(idle_interval),
      engine_(runner, {options.sequences_max, options.sequences_max + options.queue_max}),
      thread_([this] { run(); }, kStackBytes) {}

TextService::~TextService() {
    end();
    thread_.join();
}

void TextService::end() noexcept {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
}

std::variant<TextService::Ticket, ApiError> TextService::submit(TextRequest request) {
    DSL_CHECK(request.tokens_max > 0, "no token is wanted");
    // Made before it is counted: from then on nothing may fail.
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
        const bool ends = ending_ || !failure_.empty();
        if (ends || open_ >= texts_max()) {
            ++counts_.refused;
            if (ends) return service_ends(failure_);
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
        reader_left_ = true;
    }
    changed_.notify_one();
}

ServiceCounts TextService::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

std::string TextService::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

std::exception_ptr TextService::error() const {
    const std::lock_guard lock(mutex_);
    return error_;
}

void TextService::forget(Texts::iterator text) {
    engine_.cancel(text->first);
    texts_.erase(text);
    const std::lock_guard lock(mutex_);
    --open_;
}

// Gives new requests to the engine while its queue has room; drops those whose readers are gone.
void TextService::take_in() {
    std::list<Arrival> taken;
    bool has_left = false;
    {
        const std::lock_guard lock(mutex_);
        has_left = std::exchange(reader_left_, false);
        if (has_left) {
            const auto gone = static_cast<int64_t>(arrivals_.remove_if(
                [](const Arrival& arrival) { return arrival.text.channel->left(); }));
            counts_.cancelled += gone;
            open_ -= gone;
        }
        taken.splice(taken.end(), arrivals_);
    }
    for (auto at = texts_.begin(); has_left && at != texts_.end();) {
        const auto text = at++;
        if (!text->second.channel->left()) continue;
        forget(text);
        const std::lock_guard lock(mutex_);
        ++counts_.cancelled;
    }
    for (Arrival& arrival : taken) admit(arrival);
}

void TextService::admit(Arrival& arrival) {
    const std::shared_ptr<TextChannel> channel = arrival.text.channel;
    try {
        // The text's place is there before the engine has the request.
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
    if (!std::exchange(text.begun, true)) {
        const std::lock_guard lock(mutex_);
        counts_.first_token_seconds += to_milliseconds(SystemClock().now() - text.submitted) / 1000;
        ++counts_.first_tokens;
    }
    TextEnd end = TextEnd::kNoMemory;
    try {
        TextPiece piece = text.written.push(made);
        if (piece.end == TextEnd::kBroken)
            log_error("serve", "a text ends: {}", decoder::kBrokenLogits);
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
        // Ranks that wait in the middle of a batch cannot go on with another one.
        if (!engine_.can_go_on()) throw;
        lose_texts();
    }
    const double seconds = to_milliseconds(SystemClock().now() - begin) / 1000;
    const std::lock_guard lock(mutex_);
    counts_.step_seconds += seconds;
    counts_.engine = engine_.counts();
}

// Ends all texts: a step that found no memory cannot be repeated, since its work is not known.
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

void TextService::fail_with(const std::exception& error) noexcept {
    try {
        log_error("serve", "{}", error.what());
    } catch (const std::exception&) {
        // failure() tells it if the log cannot be written.
    }
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    try {
        failure_ = error.what();
    } catch (const std::bad_alloc&) {
        failure_ = "no memory";  // short enough to need no memory
    }
}

void TextService::serve() {
    for (;;) {
        {
            std::unique_lock lock(mutex_);
            counts_.engine = engine_.counts();
            const auto has_work = [&] { return ending_ || !arrivals_.empty() || reader_left_; };
            if (engine_.idle()) changed_.wait_for(lock, idle_interval_, has_work);
            if (ending_) break;
        }
        take_in();
        if (engine_.idle()) {
            idle_(true);
        } else {
            step();
        }
    }
    idle_(false);
}

void TextService::run() {
    try {
        serve();
    } catch (const std::exception& error) {
        fail_with(error);
    }
    end_all(TextEnd::kFailed);
}

}  // namespace dslaunch::server
