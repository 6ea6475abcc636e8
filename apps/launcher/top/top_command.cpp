// `dslaunch top`: shows every second what running jobs are doing. Changes nothing.
#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/screen.h"
#include "base/terminal/moving_line.h"
#include "base/text/command_line.h"
#include "launch/supervise/job.h"
#include "launcher/jobs/known_jobs.h"
#include "launcher/run/commands.h"
#include "launcher/top/job_screen.h"

namespace dslaunch::launcher {
namespace {

struct TopArguments {
    std::string job;
    double interval_s = 1;  // between two screens
    bool once = false;
    bool json = false;
};

// Takes over the screen of the terminal at stdout, and the keys of stdin, while it exists.
class TopScreen {
  public:
    TopScreen() : has_keys_(::isatty(0) == 1 && ::tcgetattr(0, &before_) == 0) {
        if (has_keys_) {
            termios raw = before_;
            raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
            has_keys_ = ::tcsetattr(0, TCSAFLUSH, &raw) == 0;
        }
        write("\x1b[?1049h\x1b[?25l");  // another screen, without a cursor
    }
    TopScreen(const TopScreen&) = delete;
    TopScreen& operator=(const TopScreen&) = delete;
    ~TopScreen() {
        write("\x1b[?25h\x1b[?1049l");
        if (has_keys_) ::tcsetattr(0, TCSAFLUSH, &before_);
    }

    // Shows LINES in one write. Returns false if the terminal is gone.
    [[nodiscard]] static bool show(const std::vector<std::string>& lines) {
        std::string bytes = "\x1b[H";
        for (const std::string& line : lines) bytes += line + "\x1b[K\r\n";
        return write(bytes + "\x1b[J");
    }
    // Waits for INTERVAL_S seconds, a key or a signal. Returns true if a signal or a key such as
    // `q` asks for the end.
    [[nodiscard]] bool is_left(const UniqueFd& signals, double interval_s) const {
        std::array<pollfd, 2> waits = {
            {{signals.get(), POLLIN, 0}, {has_keys_ ? 0 : -1, POLLIN, 0}}};
        if (::poll(waits.data(), waits.size(), static_cast<int>(1000 * interval_s)) <= 0)
            return false;
        if (waits[0].revents != 0) return true;
        std::array<char, 64> keys{};
        const ssize_t got = ::read(0, keys.data(), keys.size());
        constexpr std::string_view kLeave = "qQ\x03\x04";  // also Ctrl-C and Ctrl-D
        return got <= 0 || std::any_of(keys.begin(), keys.begin() + got,
                                       [&](char key) { return kLeave.find(key) != kLeave.npos; });
    }

  private:
    static bool write(std::string_view bytes) { return write_full(1, bytes) == 0; }

    termios before_{};
    bool has_keys_;
};

ScreenSize size_of_terminal() {
    winsize size{};
    // A terminal that does not know its size says 0.
    if (::ioctl(1, TIOCGWINSZ, &size) != 0) size = {};
    return {size.ws_col == 0 ? 80U : size.ws_col, size.ws_row == 0 ? 24U : size.ws_row};
}

// Returns the job that NAME means, or, without a name, all running jobs of this machine.
std::vector<JobView> look_at_jobs(const std::string& name, PlannedSteps& planned) {
    std::vector<JobView> views;
    const std::string state = own_state_directory();
    if (!name.empty()) return {view_job(find_job(state, name), planned)};
    for (const KnownJob& job : read_jobs(state))
        if (job.lives) views.push_back(view_job(job, planned));
    return views;
}

std::vector<std::string> screen_lines(const std::vector<JobView>& views, const ScreenSize& size) {
    const std::time_t now = std::time(nullptr);
    if (views.size() != 1) return jobs_screen(views, now, size);
    return job_screen(views.front(), now, size);
}

void print_views(const std::vector<JobView>& views, const ScreenSize& size) {
    for (const std::string& line : screen_lines(views, size)) fmt::print("{}\n", line);
}

// Shows the jobs until they have ended or the user leaves, and then prints the last screen.
int watch_jobs(const TopArguments& arguments, std::vector<JobView> views, PlannedSteps& planned) {
    std::string name = arguments.job;
    const UniqueFd signals = launch::open_end_signals();
    {
        const TopScreen screen;
        while (true) {
            // If a single job is shown, it stays alone on the screen when another job begins.
            if (name.empty() && views.size() == 1) name = views.front().job.id;
            const ScreenSize size = size_of_terminal();
            // The last row stays free, so that nothing scrolls. The row above it names the key that
            // leaves.
            const size_t room = size.rows > 3 ? size.rows - 2 : 1;
            std::vector<std::string> lines = screen_lines(views, {size.columns, room});
            lines.resize(std::min(lines.size(), room));
            if (size.rows > 3)
                lines.push_back(first_columns("q leaves; the job goes on", size.columns));
            if (!TopScreen::show(lines)) return 0;
            const bool are_over =
                std::ranges::none_of(views, [](const JobView& view) { return view.job.lives; });
            if (are_over || screen.is_left(signals, arguments.interval_s)) break;
            views = look_at_jobs(name, planned);
        }
    }
    print_views(views, {size_of_terminal().columns, 0});
    return 0;
}

int show_top(const TopArguments& arguments) {
    PlannedSteps planned;
    std::vector<JobView> views = look_at_jobs(arguments.job, planned);
    if (arguments.json) {
        fmt::print("{}\n", views_json(views, std::time(nullptr)));
    } else if (views.empty()) {
        print_message(
            "dslaunch: no job is running on this machine; `dslaunch ps --all` lists those that "
            "ended");
    } else if (erases_lines(1) && !arguments.once) {
        return watch_jobs(arguments, std::move(views), planned);
    } else {
        print_views(views, {std::max<size_t>(120, terminal_columns(1)), 0});
    }
    return 0;
}

}  // namespace

int top_command(std::span<const std::string> arguments) {
    TopArguments parsed;
    CommandLine app(
        {.does = "Shows what a job does now and refreshes each second: steps, loss, speed, time "
                 "left, memory, traffic, and where each rank is. It only reads: q or Ctrl-C ends "
                 "the display, not the job. Without a terminal, top prints once.",
         .examples = {"dslaunch top", "dslaunch top 3f2a --json"},
         .docs = "docs/guide/jobs.md"},
        "dslaunch top");
    app.add("JOB", parsed.job,
            "the job's id, the first letters of its id, or its --output folder; default: the "
            "running job, or a list if there are several");
    app.add("-d,--interval SECONDS", parsed.interval_s, "time between two screens; default: 1")
        .range(0.1, 3600.0);
    app.add("--once", parsed.once, "print once and end, as without a terminal");
    app.add("--json", parsed.json, "print one JSON object, once");
    return app.parse({arguments.begin(), arguments.end()}) ? show_top(parsed) : 0;
}

}  // namespace dslaunch::launcher
