// The lines of a job on a terminal: those that move, those that are wrapped, and text that grows.
#include <cstdlib>

#include "launch/output/job_files.h"
#include "launch/output/job_output.h"
#include "support/catch.h"
#include "support/piped_stream.h"
#include "unit/launch/output/captured_output.h"

using namespace dslaunch;
using namespace dslaunch::launch;
using namespace dslaunch::test;

TEST_CASE("on a terminal a text is continued after other lines, and nothing moves within it") {
    Captured captured;
    const OnTerminal terminal(40);
    JobSpec spec = two_ranks(TargetKind::kModel, "");
    spec.duty = ModelDuty::kWrite;
    std::vector<std::string> shown;
    {
        StandardStreams streams;
        JobFiles files(spec);
        JobOutput output(spec, streams, files);
        output.rank_progress("1 of 2 texts");
        const auto look = [&] {
            output.tell_progress();
            shown.push_back(terminal.shown());
        };
        look();
        output.ranks().add(0, OutputStream::kStdout, "first\n\x1b[2Jna\xC3");
        look();
        output.ranks().add(0, OutputStream::kStdout, "\xAFve");
        look();
        output.ranks().add(0, OutputStream::kStderr, "log\n");
        look();
        output.ranks().add(0, OutputStream::kStdout, "end");
        look();
    }
    const std::string last = terminal.shown();
    captured.restore();
    CHECK(shown[0] == moving("1 of 2 texts"));
    CHECK(shown[1] == kErased + "first\r\n\\x1b[2Jna");
    CHECK(shown[2] == "\xC3\xAFve");
    CHECK(shown[3] == "\r\n[0] log\r\n" + moving("1 of 2 texts"));
    CHECK(shown[4] == kErased + "end");
    CHECK(last == "\r\n");
}

TEST_CASE("on a terminal log lines go without their time, and warnings have a colour") {
    ::unsetenv("NO_COLOR");
    const int ranks = GENERATE(1, 2);
    Captured captured;
    const OnTerminal terminal(40);
    JobSpec spec = two_ranks(TargetKind::kModel, "");
    spec.world_size = ranks;
    spec.nodes.front().workers.resize(static_cast<size_t>(ranks));
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.ranks().add(
        0, OutputStream::kStderr,
        "12:00:00.123 model: m.pt\n12:00:00.124 warning data: 3 samples are fewer than "
        "8\nno log line\n");
    const std::string prefix = ranks == 1 ? "" : "[0] ";
    const std::string wrapped = ranks == 1 ? "data: 3 samples are fewer than\r\n    8"
                                           : "data: 3 samples are fewer\r\n    than 8";
    const std::string shown = terminal.shown();
    captured.restore();
    CHECK(shown == prefix + "model: m.pt\r\n" + prefix + "\x1b[33mwarning:\x1b[0m " + wrapped +
                       "\r\n[0] no log line\r\n");
}

TEST_CASE("the progress of a training moves on its terminal, and every other line is whole") {
    Captured captured;
    const OnTerminal terminal(24);
    const JobSpec spec = two_ranks(TargetKind::kModel, "");
    StandardStreams streams;
    JobFiles files(spec);
    FakeClock clock;
    std::vector<std::string> shown;
    {
        JobOutput output(spec, streams, files, nullptr, &clock);
        const auto look = [&] {
            output.tell_progress();
            shown.push_back(terminal.shown());
        };
        output.begin_work("reaching 3 hosts");
        look();
        clock.sleep_for(std::chrono::seconds(2));
        look();
        output.rank_progress("step 1/9  loss 2.5  668 MiB");
        look();
        look();
        output.ranks().add(0, OutputStream::kStderr, "one\ntwo\n");
        look();
        output.ranks().add(0, OutputStream::kStdout, "result\n");
        look();
        output.progress("step 2/9  loss 2.4");
        look();
        output.begin_work("");
        look();
        // A rank that works has started, even if it does not report its progress.
        output.begin_work("starting 2 ranks");
        output.rank_progress("");
        clock.sleep_for(std::chrono::seconds(2));
        look();
        output.rank_progress("step 3/9");
        look();
        output.note("dslaunch: the end");
        shown.push_back(terminal.shown());
    }
    captured.restore();
    const std::string step = moving("step 1/9  loss 2.5");
    CHECK(shown == std::vector<std::string>{
                       "", moving("reaching 3 hosts  2 s"), step, "",
                       kErased + "[0] one\r\n" + kErased + "[0] two\r\n" + step,
                       kErased + "result\r\n" + step, kErased + "step 2/9  loss 2.4\r\n" + step,
                       kErased, "", moving("step 3/9"), kErased + "dslaunch: the end\r\n"});
    CHECK(terminal.shown().empty());
}

TEST_CASE("a moving line that is there at the end of a job is erased") {
    Captured captured;
    const OnTerminal terminal(40);
    const JobSpec spec = two_ranks(TargetKind::kModel, "");
    StandardStreams streams;
    JobFiles files(spec);
    {
        JobOutput output(spec, streams, files);
        output.rank_progress("step 1/9");
        output.tell_progress();
    }
    captured.restore();
    CHECK(terminal.shown() == moving("step 1/9") + kErased);
}

TEST_CASE("a program that reads stdout has the terminal until the next progress comes") {
    Captured captured;
    PipedStream out(1);
    const OnTerminal terminal(40, /*has_stdout=*/false);
    const JobSpec spec = two_ranks(TargetKind::kModel, "");
    StandardStreams streams;
    JobFiles files(spec);
    JobOutput output(spec, streams, files);
    output.rank_progress("step 1/9");
    output.tell_progress();
    output.ranks().add(0, OutputStream::kStdout, "result\n");
    output.tell_progress();
    const std::string before = terminal.shown();
    output.rank_progress("step 2/9");
    output.tell_progress();
    const std::string after = terminal.shown();
    out.restore();
    captured.restore();
    CHECK(before == moving("step 1/9") + kErased);
    CHECK(after == moving("step 2/9"));
}

TEST_CASE("scripts, programs and quiet jobs have no line of ours that moves") {
    for (const TargetKind kind : {TargetKind::kPython, TargetKind::kProgram, TargetKind::kModel}) {
        Captured captured;
        const OnTerminal terminal(40);
        JobSpec spec = two_ranks(kind, "");
        spec.log.quiet = kind == TargetKind::kModel;
        StandardStreams streams;
        JobFiles files(spec);
        FakeClock clock;
        JobOutput output(spec, streams, files, nullptr, &clock);
        output.begin_work("reaching 3 hosts");
        clock.sleep_for(std::chrono::seconds(100));
        output.tell_progress();
        output.rank_progress("step 1/9");
        output.tell_progress();
        captured.restore();
        CHECK(terminal.shown().empty());
    }
}
