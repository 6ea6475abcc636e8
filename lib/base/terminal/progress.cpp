#include "base/terminal/progress.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/fd.h"

namespace dslaunch {

namespace {

constexpr int kTerminal = 2;
constexpr std::chrono::seconds kToldFirst{10};

double seconds_of(Duration duration) {
    return to_milliseconds(duration) / 1e3;
}

}  // namespace

void ProgressText::begin(TimePoint now, std::string_view what, int64_t total,
                         std::string_view noun) {
    part_begin_ = now;
    what_ = what;
    noun_ = noun;
    total_ = total;
    done_ = 0;
}

std::string ProgressText::text(TimePoint now) const {
    const double seconds = seconds_of(now - part_begin_);
    if (noun_.empty() || (total_ == 0 && done_ == 0))
        return fmt::format("{}  {}", what_, time_text(seconds));
    std::string text = total_ > 0 ? fmt::format("{}  {}/{} {}", what_, done_, total_, noun_)
                                  : fmt::format("{}  {} {}", what_, done_, noun_);
    if (done_ == 0) return fmt::format("{}  {}", text, time_text(seconds));
    const double rate = static_cast<double>(done_) / std::max(seconds, 1e-3);
    text += fmt::format("  {} {}/s", rate_number(rate), noun_);
    if (total_ > 0)
        text += fmt::format("  left {}", clock_text(static_cast<double>(total_ - done_) / rate));
    return text;
}

bool ProgressText::is_told(TimePoint now) {
    if (now - told_ < (was_told_ ? kToldEach - kToldFirst : kToldFirst)) return false;
    told_ = now;
    return was_told_ = true;
}

Progress::Progress(std::string_view component, std::string_view what, int64_t total,
                   std::string_view noun)
    : component_(component), text_(clock_.now()), line_(kTerminal) {
    text_.begin(clock_.now(), what, total, noun);
    if (!log_enabled(LogLevel::kInfo)) {
        has_ended_ = true;
        return;
    }
    sink_.emplace([this](std::string_view line) { log(line); });
    thread_ = SmallThread([this] { draw_until_ended(); });
}

void Progress::begin(std::string_view what, int64_t total, std::string_view noun) {
    const std::lock_guard lock(mutex_);
    text_.begin(clock_.now(), what, total, noun);
}

void Progress::done(int64_t count) {
    const std::lock_guard lock(mutex_);
    text_.done(count);
}

void Progress::total(int64_t total) {
    const std::lock_guard lock(mutex_);
    text_.total(total);
}

void Progress::end() {
    {
        const std::lock_guard lock(mutex_);
        has_ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
    sink_.reset();
    static_cast<void>(write_full(kTerminal, line_.end()));
}

void Progress::log(std::string_view line) {
    const std::lock_guard lock(mutex_);
    std::string bytes = line_.clear();
    bytes += line;
    bytes += line_.draw_again();
    static_cast<void>(write_full(kTerminal, bytes));
}

void Progress::draw_until_ended() {
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, kShownAfter, [this] { return has_ended_; })) {
        const TimePoint now = clock_.now();
        if (line_.moves()) {
            if (text_.is_shown(now))
                static_cast<void>(write_full(kTerminal, line_.draw(text_.text(now))));
        } else if (text_.is_told(now)) {
            const std::string text = text_.text(now);
            // Releases the lock first, because the log sink calls log(), which needs the lock.
            lock.unlock();
            log_info(component_, "{}", text);
            lock.lock();
        }
    }
}

}  // namespace dslaunch
