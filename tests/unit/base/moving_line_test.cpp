#include "base/terminal/moving_line.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/fd.h"
#include "support/catch.h"
#include "support/pty_process.h"

namespace dslaunch {

TEST_CASE("of a line that is too wide the last fields are left out, and the first is cut") {
    struct Row {
        const char* text;
        size_t columns;
        const char* left;
    };
    const Row rows[] = {
        {"step 4/9  loss 2.5  7 MiB", 25, "step 4/9  loss 2.5  7 MiB"},
        {"step 4/9  loss 2.5  7 MiB", 24, "step 4/9  loss 2.5"},
        {"step 4/9  loss 2.5  7 MiB", 17, "step 4/9"},
        {"step 4/9  loss 2.5  7 MiB", 7, "step 4/"},
        {"±±±", 2, "±±"},
        {"\xff\xff\xff", 2, "\xff\xff"},
        {"", 3, ""},
        {"abc", 0, ""},
    };
    for (const Row& row : rows) {
        INFO(row.text << " in " << row.columns);
        CHECK(without_last_fields(row.text, row.columns) == row.left);
    }
}

TEST_CASE("times are seconds, and hours, minutes and seconds from 100 s on") {
    CHECK(time_text(0) == "0 s");
    CHECK(time_text(99.9) == "99 s");
    CHECK(time_text(100) == "0:01:40");
    CHECK(clock_text(7) == "0:00:07");
    CHECK(clock_text(3600 * 27 + 61) == "27:01:01");
    CHECK(clock_text(-1) == "0:00:00");
}

TEST_CASE("a line moves on a terminal that can erase one, and nowhere else") {
    int pipe_ends[2];
    REQUIRE(::pipe(pipe_ends) == 0);
    const UniqueFd read_end(pipe_ends[0]), write_end(pipe_ends[1]);
    ::setenv("TERM", "xterm", 1);
    CHECK(!MovingLine(write_end.get()).moves());
    const UniqueFd null(::open("/dev/null", O_WRONLY));
    CHECK(!MovingLine(null.get()).moves());
    for (const char* kind : {"", "dumb", "xterm"}) {
        const std::string name = kind;
        test::PtyProcess child([&] {
            ::setenv("TERM", name.c_str(), 1);
            return MovingLine(2).moves() ? 1 : 0;
        });
        INFO(name);
        CHECK(child.wait() == (name == "xterm" ? 1 : 0));
    }
}

// Writes BYTES to the terminal, in a test's child process.
void show(const std::string& bytes) {
    static_cast<void>(write_full(2, bytes));
}

TEST_CASE("a moving line gives way to other text and comes back after it") {
    test::PtyProcess child(
        [] {
            MovingLine line(2);
            for (const std::string& nothing : {line.clear(), line.draw_again()}) show(nothing);
            show(line.draw("step 1  loss 2"));
            show(line.clear());
            show("other\n");
            show(line.draw_again());
            show(line.draw_again());  // the line is there already
            show(line.draw("step 2"));
            for (const std::string& bytes : {line.end(), line.clear(), line.draw_again()})
                show(bytes);
            return 0;
        },
        10);
    CHECK(child.wait() == 0);
    CHECK(child.shown() ==
          "\rstep 1\x1b[J\r\r\x1b[Jother\r\n\rstep 1\x1b[J\r\rstep 2\x1b[J\r\r\x1b[J");
}

TEST_CASE("the line has the width that the terminal has when it is drawn") {
    test::PtyProcess child(
        [] {
            MovingLine line(2);
            show(line.draw("step 1  loss 2  lr 3"));
            winsize size{};
            for (const int columns : {15, 7, 200, 0}) {
                size.ws_col = static_cast<uint16_t>(columns);
                ::ioctl(2, TIOCSWINSZ, &size);
                show(line.draw("step 1  loss 2  lr 3"));
            }
            return 0;
        },
        40);
    CHECK(child.wait() == 0);
    CHECK(child.shown() ==
          "\rstep 1  loss 2  lr 3\x1b[J\r\rstep 1  loss 2\x1b[J\r\rstep 1\x1b[J\r"
          "\rstep 1  loss 2  lr 3\x1b[J\r\rstep 1  loss 2  lr 3\x1b[J\r");
}

TEST_CASE("a job in the background of its terminal moves no line, and none is erased there") {
    test::PtyProcess child([] {
        MovingLine line(2);
        if (!line.moves()) return 1;
        static_cast<void>(line.draw("step 1"));
        const pid_t job = ::fork();
        if (job == 0) {
            ::setpgid(0, 0);
            const bool is_quiet = !line.moves() && line.clear().empty() &&
                                  line.draw_again().empty() && line.end().empty();
            ::_exit(is_quiet ? 0 : 2);
        }
        int status = 0;
        ::waitpid(job, &status, 0);
        return WEXITSTATUS(status);
    });
    CHECK(child.wait() == 0);
}

}  // namespace dslaunch
