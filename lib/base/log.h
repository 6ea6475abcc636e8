// Writes log lines to stderr, each line with one write() call. A line has the form `time speaker
// component: message`; a level other than info is written before the component. The launcher's
// lines have the form `dslaunch: message`. Any thread may call the functions. Nothing is written to
// stdout, which is for results only. Writing may block until stderr is read, unless a LogSink takes
// the line.
#pragma once

#include <fmt/core.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace dslaunch {

// kDetail: always written to a job's log files. The launcher and other programs show it only
// together with debug lines.
enum class LogLevel { kError, kWarn, kInfo, kDetail, kDebug };

// Sets the name of this process, the "speaker", that each line contains. An agent sets
// "agent@host". A worker sets "r3@host", unless a launcher adds this name to the worker's lines.
// Other programs have no name. Called once, in main().
void set_log_speaker(const std::string& name);
// From now on, log lines have the form `dslaunch: message`, like the launcher's error messages. If
// debug lines are shown, log lines keep their time and component.
void set_log_as_messages();
// Drops lines that are less urgent than LEVEL from now on.
void set_log_level(LogLevel level);
// Returns the level with that NAME: "error", "warn", "info" or "debug". "critical" means error, and
// "warning" means warn. Throws Error{kUsage} for any other name.
[[nodiscard]] LogLevel parse_log_level(std::string_view name);
// Returns true if a line of LEVEL would be written.
[[nodiscard]] bool log_enabled(LogLevel level);
// While a LogSink exists, its WRITE gets each log line, with its newline, and stderr gets none.
// WRITE is called on the thread that logs, for one line at a time. It must neither log nor wait. If
// there are several sinks, the newest one gets the lines.
class LogSink {
  public:
    explicit LogSink(std::function<void(std::string_view line)> write);
    LogSink(const LogSink&) = delete;
    LogSink& operator=(const LogSink&) = delete;
    // Waits until a running call of WRITE has returned. REQUIRES: newer sinks have been destroyed.
    ~LogSink();

  private:
    std::function<void(std::string_view)> before_;
};
// Writes one line at any level; REQUIRES: log_enabled(LEVEL). log_info(), log_warn() and the others
// check the level and then call this function.
void log_line(LogLevel level, std::string_view component, std::string_view message);

// The parts of a line that log_line() wrote with a time and without a speaker.
struct LoggedLine {
    LogLevel level = LogLevel::kInfo;
    std::string_view said;  // "component: message"
};
// Returns the parts of LINE; nullopt unless log_line() wrote LINE with a time and without a
// speaker.
[[nodiscard]] std::optional<LoggedLine> read_logged(std::string_view line);

// Write one line each. The message is formatted only if its level is written. COMPONENT: the part
// of the program that the message is about ("checkpoint").
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
