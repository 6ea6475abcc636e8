#include "serve/text_service.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"

namespace dslaunch::serve {

namespace {

TextEnd end_of(infer::EndReason reason) {
    switch (reason) {
        case infer::EndReason::kNone:
            return TextEnd::kNone;
        case infer::EndReason::kEndToken:
            return TextEnd::kStop;
        case infer::EndReason::kTokens:
        case infer::EndReason::kContext:
            return TextEnd::kLength;
        case infer::EndReason::kBroken:
            return TextEnd::kBroken;
    }
    return TextEnd::kFailed;
}

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

TextService::TextService(infer::StepRunner& runner, const infer::TextCodec& codec,
                         infer::EngineOptions options, std::vector<int32_t> end_tokens,
                         std::function<void(bool)> idle, Duration idle_interval)
    : codec_(codec),
      options_(options),
      end_tokens_(std::move(end_tokens)),
      idle_(std::move(idle)),
      idle_interval_(idle_interval),
      engine_(runner, {options.sequences_max, options.sequences_max + options.queue_max}),
      thread_([this] { run(); }) {}

TextService::~TextService() {
    end();
    thread_.join();
}

void TextService::end() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_one();
}

std::variant<TextService::Ticket, ApiError> TextService::submit(TextRequest request) {
    DSL_CHECK(request.tokens_max > 0, "no token is wanted");
    Arrival arrival{{std::move(request.prompt), request.tokens_max, request.sampling, end_tokens_},
                    {0,
                     std::make_shared<TextChannel>(),
                     {codec_.stream(), std::move(request.stops)},
                     SystemClock().now(),
                     false}};
    engine_.check(arrival.request);
    Ticket ticket{0, arrival.text.channel};
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
        ticket.id = arrival.text.id = next_id_++;
        arrivals_.push_back(std::move(arrival));
    }
    changed_.notify_one();
    return ticket;
}

void TextService::cancel(TicketId id) {
    {
        const std::lock_guard lock(mutex_);
        cancelled_.push_back(id);
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

void TextService::forget(infer::RequestId id) {
    engine_.cancel(id);
    texts_.erase(id);
    const std::lock_guard lock(mutex_);
    --open_;
}

// New requests go to the engine as far as its queue has room; those whose readers are gone leave.
void TextService::take_in() {
    std::vector<TicketId> cancelled;
    std::vector<Arrival> taken;
    {
        const std::lock_guard lock(mutex_);
        cancelled.swap(cancelled_);
        counts_.cancelled += std::erase_if(arrivals_, [&](const Arrival& arrival) {
            const bool is_gone = std::ranges::find(cancelled, arrival.text.id) != cancelled.end();
            open_ -= is_gone ? 1 : 0;
            return is_gone;
        });
        while (!arrivals_.empty()) {
            taken.push_back(std::move(arrivals_.front()));
            arrivals_.pop_front();
        }
    }
    for (const TicketId id : cancelled) {
        const auto found =
            std::ranges::find_if(texts_, [&](const auto& text) { return text.second.id == id; });
        if (found == texts_.end()) continue;
        forget(found->first);
        const std::lock_guard lock(mutex_);
        ++counts_.cancelled;
    }
    for (Arrival& arrival : taken)
        texts_.emplace(engine_.add(std::move(arrival.request)), std::move(arrival.text));
}

void TextService::deliver(const infer::MadeToken& made) {
    const auto found = texts_.find(made.request);
    DSL_CHECK(found != texts_.end(), "a token for nobody");
    Text& text = found->second;
    if (!std::exchange(text.has_begun, true)) {
        const std::lock_guard lock(mutex_);
        counts_.first_token_seconds += to_milliseconds(SystemClock().now() - text.submitted) / 1000;
        ++counts_.first_tokens;
    }
    const bool is_broken = made.end == infer::EndReason::kBroken;
    if (is_broken) log_error("serve", "a text ends: {}", infer::kBrokenLogits);
    TextPiece piece{"", is_broken ? 0 : 1, end_of(made.end)};
    if (!is_broken) piece.text = text.written.push(made);
    if (text.written.is_stopped()) piece.end = TextEnd::kStop;
    const bool has_ended = piece.end != TextEnd::kNone;
    text.channel->push(std::move(piece));
    if (!has_ended) return;
    forget(made.request);
    const std::lock_guard lock(mutex_);
    ++counts_.finished;
}

void TextService::step() {
    const TimePoint begin = SystemClock().now();
    for (const infer::MadeToken& made : engine_.step()) deliver(made);
    const double seconds = to_milliseconds(SystemClock().now() - begin) / 1000;
    const std::lock_guard lock(mutex_);
    counts_.step_seconds += seconds;
    counts_.engine = engine_.counts();
}

void TextService::end_all(TextEnd end) {
    for (auto& [id, text] : texts_) text.channel->push({"", 0, end});
    texts_.clear();
    const std::lock_guard lock(mutex_);
    for (Arrival& arrival : arrivals_) arrival.text.channel->push({"", 0, end});
    arrivals_.clear();
    open_ = 0;
}

void TextService::run() {
    try {
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                counts_.engine = engine_.counts();
                const auto has_work = [&] {
                    return ending_ || !arrivals_.empty() || !cancelled_.empty();
                };
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
    } catch (const std::exception& error) {
        log_error("serve", "{}", error.what());
        const std::lock_guard lock(mutex_);
        failure_ = error.what();
        error_ = std::current_exception();
    }
    end_all(TextEnd::kFailed);
}

}  // namespace dslaunch::serve
