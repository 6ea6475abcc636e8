#include "base/log.h"

// Compiles spdlog's code into this file, instead of linking spdlog's library. The names of spdlog's
// symbols have no version. A program that links dslaunch's library and another version of spdlog
// would therefore mix the two versions.
#undef SPDLOG_COMPILED_LIB
#undef SPDLOG_SHARED_LIB
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/screen.h"
#include "base/text.h"

namespace dslaunch {

namespace {

struct Output {
    std::mutex mutex;
    std::function<void(std::string_view)> sink;  // if empty, lines go to stderr
};

Output& output() {
    static Output one;
    return one;
}

// Writes LINE. Failure is ignored: a job must not end because nobody reads its output, and there is
// no other place to report it.
void write_line(std::string_view line) {
    {
        const std::lock_guard lock(output().mutex);
        if (output().sink) return output().sink(line);
    }
    static_cast<void>(write_full(2, line));
}

constexpr std::string_view kTime = "00:00:00.000 ";  // the form that the logger's pattern prints

// Colours the level in LINE. The level stands after the time.
void colour_level(std::string& line) {
    for (const auto& [word, colour] :
         {std::pair<std::string_view, std::string_view>{"error", "\x1b[1;31m"},
          {"warning", "\x1b[33m"}}) {
        if (line.size() <= kTime.size() || line.compare(kTime.size(), word.size(), word) != 0)
            continue;
        line.insert(kTime.size() + word.size(), "\x1b[0m");
        line.insert(kTime.size(), colour);
        return;
    }
}

// A sink that writes each line with one call. spdlog's own stderr sink goes through stdio, which
// may split a long line into several writes.
class OneWriteSink final : public spdlog::sinks::base_sink<std::mutex> {
  protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        formatter_->format(message, line);
        std::string text = fitted({line.data(), line.size()}, 2);
        if (takes_colours(2)) colour_level(text);
        write_line(text);
    }
    void flush_() override {}
};

spdlog::logger& logger() {
    static spdlog::logger instance = [] {
        spdlog::logger made("dslaunch", std::make_shared<OneWriteSink>());
        made.set_pattern("%H:%M:%S.%e %v");
        return made;
    }();
    return instance;
}

std::string& speaker() {
    static std::string name;
    return name;
}

bool& are_messages() {
    static bool chosen = false;
    return chosen;
}

// Returns the word for LEVEL in a log line; "" for info.
std::string_view level_word(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return "error";
        case LogLevel::kWarn:
            return "warning";
        case LogLevel::kInfo:
            return "";
        case LogLevel::kDetail:
            return "detail";
        case LogLevel::kDebug:
            return "debug";
    }
    return "";
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
    switch (level) {
        case LogLevel::kError:
            return spdlog::level::err;
        case LogLevel::kWarn:
            return spdlog::level::warn;
        case LogLevel::kInfo:
            return spdlog::level::info;
        case LogLevel::kDetail:
            return spdlog::level::debug;
        case LogLevel::kDebug:
            return spdlog::level::trace;
    }
    return spdlog::level::info;
}

}  // namespace

LogSink::LogSink(std::function<void(std::string_view line)> write) {
    const std::lock_guard lock(output().mutex);
    before_ = std::exchange(output().sink, std::move(write));
}
LogSink::~LogSink() {
    const std::lock_guard lock(output().mutex);
    output().sink = std::move(before_);
}

void set_log_speaker(const std::string& name) {
    speaker() = name;
}
void set_log_as_messages() {
    are_messages() = true;
}
void set_log_level(LogLevel level) {
    logger().set_level(to_spdlog(level));
}

LogLevel parse_log_level(std::string_view name) {
    if (name == "error" || name == "critical") return LogLevel::kError;
    if (name == "warn" || name == "warning") return LogLevel::kWarn;
    if (name == "info") return LogLevel::kInfo;
    if (name == "debug") return LogLevel::kDebug;
    fail(ExitCode::kUsage, "log level '{}' is unknown; use error, warn, info or debug",
         printable(name));
}

bool log_enabled(LogLevel level) {
    return logger().should_log(to_spdlog(level));
}

std::optional<LoggedLine> read_logged(std::string_view line) {
    if (line.size() <= kTime.size()) return std::nullopt;
    for (size_t i = 0; i < kTime.size(); ++i) {
        const bool is_digit = line[i] >= '0' && line[i] <= '9';
        if (kTime[i] == '0' ? !is_digit : line[i] != kTime[i]) return std::nullopt;
    }
    LoggedLine found{LogLevel::kInfo, line.substr(kTime.size())};
    for (const LogLevel level :
         {LogLevel::kError, LogLevel::kWarn, LogLevel::kDetail, LogLevel::kDebug}) {
        const std::string word = std::string(level_word(level)) + " ";
        if (!found.said.starts_with(word)) continue;
        found = {level, found.said.substr(word.size())};
        break;
    }
    const size_t end = found.said.find(": ");
    const bool is_component =
        end != 0 && end != std::string_view::npos &&
        found.said.substr(0, end).find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") ==
            std::string_view::npos;
    return is_component ? std::optional(found) : std::nullopt;
}

void log_line(LogLevel level, std::string_view component, std::string_view message) {
    const std::string_view word = level_word(level);
    if (are_messages() && !log_enabled(LogLevel::kDebug)) {
        std::string line =
            fitted(fmt::format("dslaunch: {}{}{}", word, word.empty() ? "" : ": ", message), 2);
        if (takes_colours(2)) line = painted(std::move(line));
        return write_line(line + "\n");
    }
    const std::string who = speaker().empty() ? std::string() : speaker() + " ";
    logger().log(to_spdlog(level), "{}{}{}{}: {}", who, word, word.empty() ? "" : " ", component,
                 message);
}

}  // namespace dslaunch
