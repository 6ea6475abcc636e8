#include "launch/output/job_output.h"

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "launch/metrics/metrics_file.h"
#include "launch/output/job_files.h"
#include "launch/process/line_splitter.h"
#include "support/catch.h"
#include "support/job_process.h"
#include "support/piped_stream.h"
#include "unit/launch/output/captured_output.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("a line of metrics names its step, or none") {
    CHECK(read_metrics(R"({"step": 7, "loss": 1.5})").step == 7);
    CHECK(read_metrics(R"({"loss": 1.5, "step": 0})").step == 0);
    for (const char* line : {"", "{", "[1]", "7", R"({"loss": 1})", R"({"step": "7"})",
                             R"({"step": 1.5})", R"({"step": null})"})
        CHECK_FALSE(read_metrics(line).step.has_value());
}

TEST_CASE("half a line that a killed launcher left in the metrics is cut off, whole ones stay") {
    const std::pair<std::string, std::string> rows[] = {
        {"", ""},
        {"{\"step\": 1}\n", "{\"step\": 1}\n"},
        {"{\"step\": 1}\n{\"ste", "{\"step\": 1}\n"},
        {"{\"ste", ""},
        {"\n", "\n"},
    };
    for (const auto& [before, kept] : rows) {
        TemporaryFolder folder;
        std::ofstream(folder.path() + "/metrics.jsonl") << before;
        JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.metrics("{\"step\": 2}");
        files.finish();
        CHECK(folder.read("metrics.jsonl") == kept + "{\"step\": 2}\n");
    }
}

TEST_CASE("a program's job leaves the metrics to its engine, and its logs to no other job") {
    const TemporaryFolder folder;
    const JobSpec spec = two_ranks(TargetKind::kProgram, folder.path());
    const JobFiles files(spec);
    CHECK_FALSE(std::filesystem::exists(folder.path() + "/metrics.jsonl"));
    CHECK_NOTHROW(MetricsFile(folder.path()));
    CHECK_THROWS_AS(JobFiles(spec), Error);
}

TEST_CASE(
    "a run that begins anew sets the metrics before it aside, one that goes on adds to them") {
    const std::string earlier = "{\"step\": 0, \"eval_loss\": 3}\n{\"step\": 1, \"loss\": 2}\n";
    const std::pair<std::string, bool> rows[] = {{"{\"step\": 0, \"eval_loss\": 4}", true},
                                                 {"{\"step\": 1, \"loss\": 4}", true},
                                                 {"{\"step\": 2, \"loss\": 1}", false}};
    for (const auto& [first, begins] : rows) {
        Captured captured;
        TemporaryFolder folder;
        std::ofstream(folder.path() + "/metrics.jsonl") << earlier;
        JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.metrics(first);
        output.metrics("{\"step\": 1, \"loss\": 5}");  // as after a restart
        files.finish();
        captured.restore();
        const bool is_said =
            captured.text(2).find(folder.path() + "/metrics-1.jsonl") != std::string::npos;
        CHECK(is_said == begins);
        const std::string added = first + "\n{\"step\": 1, \"loss\": 5}\n";
        CHECK(folder.read("metrics.jsonl") == (begins ? added : earlier + added));
        if (begins) CHECK(folder.read("metrics-1.jsonl") == earlier);
    }
}

TEST_CASE("results of a model's rank 0 are plain on stdout, all else carries its rank on stderr") {
    Captured captured;
    TemporaryFolder folder;
    const JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.ranks().add(0, OutputStream::kStdout, "result\n");
    output.ranks().add(0, OutputStream::kStderr, "log\x1b[2J\r\n");
    output.ranks().add(1, OutputStream::kStdout, "other\n");
    files.finish();
    captured.restore();
    CHECK(captured.text(1) == "result\n");
    CHECK(captured.text(2) == "[0] log\\x1b[2J\n[1] other\n");
    CHECK(folder.read("logs/rank-0.log") == "result\nlog\x1b[2J\r\n");
    CHECK(folder.read("logs/rank-1.log") == "other\n");
}

TEST_CASE("a text is shown as it comes, to the byte, and recorded in whole lines") {
    Captured captured;
    TemporaryFolder folder;
    JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
    spec.duty = ModelDuty::kWrite;
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    const std::string longest(3 * kLineBytesMax, 'x');
    std::vector<std::string> shown;
    for (const std::string& part : {std::string("a \xC3"), std::string("\xA9\r\nb"), longest}) {
        output.ranks().add(0, OutputStream::kStdout, part);
        shown.push_back(captured.text(1));
    }
    output.ranks().add(0, OutputStream::kStderr, "log\n");
    output.ranks().add(0, OutputStream::kStdout, "c\n");
    files.finish();
    captured.restore();
    CHECK(shown[0] == "a \xC3");
    CHECK(shown[1] == "a \xC3\xA9\r\nb");
    CHECK(shown[2] == shown[1] + longest);
    CHECK(captured.text(1) == shown[2] + "c\n");
    CHECK(captured.text(2) == "[0] log\n");
    const std::string log = folder.read("logs/rank-0.log");
    CHECK(log.starts_with("a \xC3\xA9\r\nbx"));
    CHECK(log.find("log\n") != std::string::npos);
    CHECK(log.ends_with("xc\n"));
}

TEST_CASE("a program keeps its two streams apart") {
    Captured captured;
    const JobSpec spec = two_ranks(TargetKind::kProgram, "");
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.ranks().add(1, OutputStream::kStdout, "out\n");
    output.ranks().add(1, OutputStream::kStderr, "err\n");
    captured.restore();
    CHECK(captured.text(1) == "[1] out\n");
    CHECK(captured.text(2) == "[1] err\n");
}

TEST_CASE("into a pipe every progress line comes at once, without control characters") {
    Captured captured;
    const JobSpec spec = two_ranks(TargetKind::kModel, "");
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.progress("step 1");
    output.progress("step 2");
    output.progress("step 3");
    output.ranks().add(0, OutputStream::kStdout, "trained\n");
    captured.restore();
    CHECK(captured.text(2) == "step 1\nstep 2\nstep 3\n");
}

TEST_CASE("quiet shows no progress") {
    Captured captured;
    JobSpec spec = two_ranks(TargetKind::kModel, "");
    spec.log.quiet = true;
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.progress("step 1");
    captured.restore();
    CHECK(captured.text(2).empty());
}

TEST_CASE("on a terminal lines have its width, and warnings have a colour unless NO_COLOR") {
    const std::string no_color = GENERATE("", "1");
    const UniqueFd master(::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
    REQUIRE(master.valid());
    REQUIRE(::grantpt(master.get()) == 0);
    REQUIRE(::unlockpt(master.get()) == 0);
    const UniqueFd terminal(::open(::ptsname(master.get()), O_RDWR | O_NOCTTY));
    REQUIRE(terminal.valid());
    ::setenv("TERM", "xterm", 1);
    ::setenv("NO_COLOR", no_color.c_str(), 1);
    winsize size{};
    size.ws_col = 26;
    REQUIRE(::ioctl(terminal.get(), TIOCSWINSZ, &size) == 0);
    {
        Captured captured;
        ::dup2(terminal.get(), 2);
        const JobSpec spec = two_ranks(TargetKind::kModel, "");
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.progress("step 1/100  loss 6.2541  left 0:05");
        output.progress("step 2/100  loss 6.2540");
        output.note("dslaunch: warning: a note that is long");
        output.ranks().add(1, OutputStream::kStderr, "data: a/long/path/to/it and more\n");
    }
    ::unsetenv("NO_COLOR");
    char bytes[256] = {};
    const ssize_t n = ::read(master.get(), bytes, sizeof bytes - 1);
    REQUIRE(n > 0);
    const std::string warning = no_color.empty() ? "\x1b[33mwarning:\x1b[0m" : "warning:";
    CHECK(std::string(bytes) ==
          "step 1/100  loss 6.2541\r\nstep 2/100  loss 6.2540\r\ndslaunch: " + warning +
              " a note\r\n    that is long\r\n[1] data:\r\n    a/long/path/to/it and\r\n    "
              "more\r\n");
}

TEST_CASE("details are in log files, and on stderr with debug lines only") {
    for (const std::string level : {"info", "debug"}) {
        Captured captured;
        TemporaryFolder folder;
        JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
        spec.log.level = level;
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        const std::string detail = "12:00:00.123 detail model: m.pt sha256=ab\n";
        const std::string shown = "12:00:00.124 model: m.pt\n";
        output.ranks().add(0, OutputStream::kStderr, detail + shown);
        output.detail("dslaunch: OMP_NUM_THREADS=1");
        // A program's text that begins in the same way stays the program's own text.
        output.ranks().add(1, OutputStream::kStdout, "12:00 detail of x\n");
        files.finish();
        captured.restore();
        const bool debug = level == "debug";
        CHECK(captured.text(2) == (debug ? "[0] " + detail : "") + "[0] " + shown +
                                      (debug ? "dslaunch: OMP_NUM_THREADS=1\n" : "") +
                                      "[1] 12:00 detail of x\n");
        CHECK(folder.read("logs/rank-0.log") == detail + shown + "dslaunch: OMP_NUM_THREADS=1\n");
        CHECK(output.ranks().last_lines(0).size() == (debug ? 2 : 1));
    }
}

TEST_CASE("where no line moves, progress is a line each 30 s in which no other told it") {
    Captured captured;
    const JobSpec spec = two_ranks(TargetKind::kModel, "");
    StandardStreams streams;
    JobFiles files(spec);
    FakeClock clock;
    JobOutput output(spec, streams, files, nullptr, &clock);
    for (int second = 1; second <= 100; ++second) {
        clock.sleep_for(std::chrono::seconds(1));
        output.rank_progress("step 1/9, " + std::to_string(second) + " s");
        if (second == 50) output.progress("step 1/9");
        output.tell_progress();
    }
    captured.restore();
    CHECK(captured.text(2) == "step 1/9, 30 s\nstep 1/9\nstep 1/9, 80 s\n");
}

TEST_CASE("a failure's own text is told by the report, not by the terminal too; logs keep it") {
    Captured captured;
    TemporaryFolder folder;
    const JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.ranks().expect_failure_text(1, "two problems:\nfirst\n");
    output.ranks().add(1, OutputStream::kStderr,
                       "12:00 error train: two problems:\nfirst\nfirst\n");
    files.finish();
    captured.restore();
    CHECK(captured.text(2) == "[1] first\n");
    CHECK(output.ranks().last_lines(1) == std::deque<std::string>{"first"});
    CHECK(folder.read("logs/rank-1.log") == "12:00 error train: two problems:\nfirst\nfirst\n");
}

TEST_CASE("run.json tells environment and result, hides secrets, and knows one attempt only") {
    TemporaryFolder folder;
    const JobSpec spec = two_ranks(TargetKind::kProgram, folder.path());
    for (int attempt = 0; attempt < 2; ++attempt) {
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.run_file().set_restarts(attempt);
        output.run_file().add_node({}, "n0", nullptr);
        WorkerStarted started;
        started.rank = 1;
        started.pid = 4242 + attempt;
        started.environment = {{"RANK", "1"},
                               {"HF_TOKEN", "hunter2"},
                               {"aws_secret_key", "x"},
                               {"ALERT_TO", "hunter2@example.com"},
                               {"HF_ARGUMENTS", "--fast --auth=hunter2 hf_abcdefghijklmnop"}};
        output.run_file().add_rank(started);
        output.write_run_file(3);
        files.finish();
    }
    const auto json = nlohmann::json::parse(folder.read("run.json"));
    CHECK(json["exit_code"] == 3);
    CHECK(json["restarts"] == 1);
    CHECK(json["nodes"].size() == 1);
    CHECK(json["ranks"][1]["pid"] == 4243);
    CHECK(json["ranks"][1]["environment"]["RANK"] == "1");
    CHECK(folder.read("run.json").find("hunter2") == std::string::npos);
    CHECK(json["ranks"][1]["environment"]["aws_secret_key"] == "(hidden)");
    CHECK(json["ranks"][1]["environment"]["ALERT_TO"] == "(hidden)");
    struct stat status {};
    REQUIRE(::stat((folder.path() + "/run.json").c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0600);
    CHECK(json["ranks"][1]["environment"]["HF_ARGUMENTS"] == "--fast --auth=(hidden) (hidden)");
    CHECK(json["ranks"][1]["command"] == nlohmann::json::array({"program", "--api-key=(hidden)"}));
}

TEST_CASE("a folder that cannot be written is named before anything starts") {
    TemporaryFolder folder;
    std::ofstream(folder.path() + "/file") << "x";
    const JobSpec spec = two_ranks(TargetKind::kProgram, folder.path() + "/file/out");
    CHECK_THROWS_AS(JobFiles(spec), Error);
}

TEST_CASE("a progress bar is seen as it moves, and other lines have lines of their own") {
    Captured captured;
    TemporaryFolder folder;
    const JobSpec spec = two_ranks(TargetKind::kProgram, folder.path());
    {
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.ranks().add(0, OutputStream::kStderr, "\r  0%");
        output.ranks().add(0, OutputStream::kStderr, "\r 20%");
        output.ranks().add(1, OutputStream::kStderr, "hello\n");
        output.ranks().add(0, OutputStream::kStdout, "a result\n");
        output.ranks().add(0, OutputStream::kStderr, "\r 40%");
        output.ranks().add(1, OutputStream::kStderr, "\r 10%");
        output.ranks().add(0, OutputStream::kStderr, "\r100%\n");
        output.ranks().add(1, OutputStream::kStderr, "\r 30%");
        output.note("a note");
        output.ranks().add(1, OutputStream::kStderr, "\x1b[2J\r\n");
        output.ranks().add(1, OutputStream::kStderr, "the end");
        files.finish();
        CHECK(output.ranks().last_lines(0).back() == "100%");
        CHECK(output.ranks().last_lines(1).back() == " 30%\\x1b[2J");
    }
    captured.restore();
    CHECK(captured.text(1) == "[0] a result\n");
    CHECK(captured.text(2) ==
          "[0]   0%\r[0]  20%\r\n[1] hello\n[0]  40%\r[1]  10%\r\n[0] 100%\n[1]  30%\r\na note\n"
          "[1]  30%\\x1b[2J\n[1] the end\r\n");
    // A rank's file has exactly the bytes that the rank wrote, but no line of one stream is inside
    // a line of the other.
    CHECK(folder.read("logs/rank-0.log") == "\r  0%\r 20%\na result\n\r 40%\r100%\n");
}

TEST_CASE("that nobody reads a training's output is said once, and is the end of a program") {
    TemporaryFolder folder;
    Captured captured;
    PipedStream out(1);
    out.close_reader();
    for (const TargetKind kind : {TargetKind::kModel, TargetKind::kProgram}) {
        const JobSpec spec = two_ranks(kind, folder.path());
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        CHECK_FALSE(output.is_lost());
        for (int line = 0; line < 3; ++line) {
            output.ranks().add(0, OutputStream::kStdout, "line\n");
            CHECK(output.is_lost() == (kind == TargetKind::kProgram));
        }
    }
    out.restore();
    captured.restore();
    const std::string said = captured.text(2);
    CHECK(said.starts_with("dslaunch: nobody reads this output any more; the job continues"));
    CHECK(std::count(said.begin(), said.end(), '\n') == 1);
    CHECK(folder.read("logs/rank-0.log") == "line\nline\nline\nline\nline\nline\n");
}

TEST_CASE("a log that takes nothing holds up nobody, and all of it is there when it takes again") {
    Captured captured;
    TemporaryFolder folder;
    std::filesystem::create_directories(folder.path() + "/logs");
    const std::string fifo = folder.path() + "/logs/rank-0.log";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const JobSpec spec = two_ranks(TargetKind::kModel, folder.path());
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    // More than a pipe holds: the writer's thread is blocked, this one is not.
    const std::string line(9'999, 'x');
    constexpr int kLines = 100;
    for (int i = 0; i < kLines; ++i)
        output.ranks().add(1 - i % 2, OutputStream::kStderr, line + "\n");
    output.metrics("{\"step\": 1}");
    CHECK(folder.read("metrics.jsonl").empty());
    const UniqueFd reader(::open(fifo.c_str(), O_RDONLY | O_CLOEXEC));
    REQUIRE(reader.valid());
    std::string got;
    char block[1 << 16];
    while (got.size() < kLines / 2 * (line.size() + 1)) {
        const ssize_t n = ::read(reader.get(), block, sizeof block);
        REQUIRE(n > 0);
        got.append(block, static_cast<size_t>(n));
    }
    files.finish();
    captured.restore();
    CHECK(got.size() == kLines / 2 * (line.size() + 1));
    CHECK(folder.read("metrics.jsonl") == "{\"step\": 1}\n");
    CHECK(folder.read("logs/rank-1.log").size() == kLines / 2 * (line.size() + 1));
}
