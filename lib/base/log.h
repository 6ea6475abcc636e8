// Log lines on stderr: one line is one write, `time speaker component: message`, with the level
// before the component unless it is info. The launcher's are `dslaunch: message`. Callable from any
// thread. stdout is for results only and is never touched here. A line may wait for whoever reads
// stderr, unless a LogSink takes it.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// A job's log files hold a detail at every level; the launcher and other programs show it with
// debug lines only.
enum class LogLevel { kError, kWarn, kInfo, kDetail, kDebug };

// Sets who speaks: "r3@host" in a worker whose lines no launcher marks, "agent@host", else empty.
// Called once, in main().
void set_log_speaker(const std::string& name);
// Writes lines as `dslaunch: message` from now on, like the launcher's other messages; with debug
// lines they keep time and component.
void set_log_as_messages();
void set_log_level(LogLevel level);
// Reads "error", "warn", "info" or "debug"; throws Error{kUsage} on anything else.
[[nodiscard]] LogLevel parse_log_level(std::string_view name);
[[nodiscard]] bool log_enabled(LogLevel level);
// While a LogSink lives, its WRITE gets each log line with its newline, in place of stderr: on the
// thread that logs, one line at a time. WRITE must neither log nor wait. The newest sink gets them.
class LogSink {
  public:
    explicit LogSink(std::function<void(std::string_view line)> write);
    LogSink(const LogSink&) = delete;
    LogSink& operator=(const LogSink&) = delete;
    // REQUIRES: newer sinks have ended. WRITE is not running when this returns.
    ~LogSink();

  private:
    std::function<void(std::string_view)> before_;
};
void log_line(LogLevel level, std::string_view component, std::string_view message);

// A line that log_line() wrote in a program without a speaker, and with a time.
struct LoggedLine {
    LogLevel level = LogLevel::kInfo;
    std::string_view said;  // "component: message"
};
// Returns the parts of LINE; nothing for other text.
[[nodiscard]] std::optional<LoggedLine> read_logged(std::string_view line);

template <typename... Args>
void log_info(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(LogLevel::kInfo))
        log_line(LogLevel::kInfo, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_warn(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(LogLevel::kWarn))
        log_line(LogLevel::kWarn, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_error(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
    log_line(LogLevel::kError, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_detail(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(LogLevel::kDetail))
        log_line(LogLevel::kDetail, component, fmt::format(format, std::forward<Args>(args)...));
}
template <typename... Args>
void log_debug(std::string_view component, fmt::format_string<Args...> format, Args&&... args) {
    if (log_enabled(LogLevel::kDebug))
        log_line(LogLevel::kDebug, component, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dslaunch
