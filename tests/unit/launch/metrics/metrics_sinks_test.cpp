// Lines of metrics as events; CSV files, compared with DeepSpeed's; the file for Prometheus; the
// feed, which finds where runs begin and which steps are repeated.
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "launch/metrics/csv_files.h"
#include "launch/metrics/metrics_record.h"
#include "launch/metrics/monitors.h"
#include "launch/metrics/prometheus_file.h"
#include "support/catch.h"
#include "support/places.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "unit/launch/metrics/event_reader.h"

namespace dslaunch {

using namespace launch;
using namespace test;

namespace {

MetricsRecord rate(int64_t samples, double value) {
    MetricsRecord record;
    record.step = samples;
    record.samples = samples;
    record.events = {{"Train/Samples/lr", value}};
    return record;
}

// Notes the calls that it gets, and fails in write number FAILS and all later ones.
class Noting final : public MetricsSink {
  public:
    Noting(std::vector<std::string>& calls, int fails) : calls_(calls), fails_(fails) {}
    int begin(int64_t samples, bool is_new_run) override {
        calls_.push_back((is_new_run ? "new " : "begin ") + std::to_string(samples));
        return --begins_that_fail < 0 ? 0 : -EIO;
    }
    int write(const MetricsRecord&, int64_t samples) override {
        calls_.push_back("write " + std::to_string(samples));
        return --fails_ < 0 ? -ENOSPC : 0;
    }
    [[nodiscard]] std::string name() const override { return "a sink"; }
    int begins_that_fail = 0;

  private:
    std::vector<std::string>& calls_;
    int fails_;
};

std::vector<std::string> calls_for(const std::vector<std::string>& lines) {
    std::vector<std::string> calls;
    std::vector<std::unique_ptr<MetricsSink>> sinks;
    sinks.push_back(std::make_unique<Noting>(calls, 100));
    MetricsFeed feed(std::move(sinks));
    for (const std::string& line : lines) CHECK(feed.add(read_metrics(line)) == 0);
    return calls;
}

}  // namespace

TEST_CASE("the numbers of a line are events with DeepSpeed's names") {
    const MetricsRecord record = read_metrics(
        R"({"step": 7, "samples": 56, "loss": 2.5, "lr": 0.001, "grad_norm": null,)"
        R"( "loss_scale": 1, "skipped": true, "rss_bytes": 5, "memory": {"moments": 3},)"
        R"( "breakdown_ms": {"forward": 2, "backward": 4, "reduce": 1, "update": 0.5}})");
    CHECK(record.step == 7);
    CHECK(record.samples == 56);
    const std::vector<MetricEvent> expected = {
        {"Train/Samples/train_loss", 2.5},
        {"Train/Samples/lr", 0.001},
        {"Train/Samples/loss_scale", 1},
        {"Train/Samples/rss_bytes", 5},
        {"Train/Samples/elapsed_time_ms_forward", 2},
        {"Train/Samples/elapsed_time_ms_backward", 5},
        {"Train/Samples/elapsed_time_ms_backward_inner", 4},
        {"Train/Samples/elapsed_time_ms_backward_allreduce", 1},
        {"Train/Samples/elapsed_time_ms_step", 0.5}};
    CHECK(record.events == expected);
    const MetricsRecord held_out =
        read_metrics(R"({"step": 7, "eval_loss": 3, "eval_samples": 9})");
    CHECK_FALSE(held_out.samples.has_value());
    CHECK(held_out.events == std::vector<MetricEvent>{{"Train/Samples/eval_loss", 3}});
    for (const char* line : {"", "{", "[1]", "7"}) CHECK(read_metrics(line).events.empty());
}

TEST_CASE("a feed begins once, again where samples are repeated, and as a new run at step 1") {
    using Lines = std::vector<std::string>;
    const std::string held_out = R"({"step": 0, "eval_loss": 4})";
    const std::string one = R"({"step": 1, "samples": 8})", two = R"({"step": 2, "samples": 16})";
    const std::string held_out_2 = R"({"step": 2, "eval_loss": 3})";
    CHECK(calls_for({one, two}) == Lines{"new 8", "write 8", "write 16"});
    CHECK(calls_for({held_out, one, two, held_out_2}) ==
          Lines{"new 0", "write 0", "write 8", "write 16", "write 16"});
    CHECK(calls_for({two}) == Lines{"begin 16", "write 16"});
    CHECK(calls_for({one, two, two}) ==
          Lines{"new 8", "write 8", "write 16", "begin 16", "write 16"});
    CHECK(calls_for({one, two, held_out, one}) ==
          Lines{"new 8", "write 8", "write 16", "begin 0", "write 0", "write 8"});
}

TEST_CASE("a held-out loss at the start of a resumed job wipes nothing, and gets its place later") {
    using Lines = std::vector<std::string>;
    const std::string held_out = R"({"step":2,"eval_loss":3})";
    const std::string three = R"({"step":3,"samples":24})";
    CHECK(calls_for({held_out, three}) == Lines{"begin 24", "write 24", "write 16"});
    CHECK(calls_for({held_out, held_out, three}) == Lines{"begin 24", "write 24", "write 16"});
    CHECK(calls_for({R"({"step":1,"eval_loss":3})", R"({"step":2,"samples":16})"}) ==
          Lines{"begin 16", "write 16", "write 8"});
    CHECK(calls_for({R"({"step":2,"samples":16,"eval_loss":3})", three}) ==
          Lines{"begin 17", "write 16", "write 24"});
}

TEST_CASE("a begin that fails is tried again with the next record, before anything is written") {
    std::vector<std::string> calls;
    auto noting = std::make_unique<Noting>(calls, 100);
    noting->begins_that_fail = 2;
    std::vector<std::unique_ptr<MetricsSink>> sinks;
    sinks.push_back(std::move(noting));
    MetricsFeed feed(std::move(sinks));
    CHECK(feed.add(rate(1, 1)) == -EIO);
    CHECK(feed.add(rate(2, 1)) == -EIO);
    CHECK(feed.add(rate(3, 1)) == 0);
    CHECK(feed.add(rate(4, 1)) == 0);
    CHECK(calls == std::vector<std::string>{"new 1", "new 1", "new 1", "write 3", "write 4"});
}

TEST_CASE("a sink that fails is told of once, and does not keep records from the others") {
    std::vector<std::string> bad, good;
    std::vector<std::unique_ptr<MetricsSink>> sinks;
    sinks.push_back(std::make_unique<Noting>(bad, 1));
    sinks.push_back(std::make_unique<Noting>(good, 100));
    MetricsFeed feed(std::move(sinks));
    CHECK(feed.add(rate(1, 1)) == 0);
    CHECK(feed.take_news().empty());
    CHECK(feed.add(rate(2, 1)) == -ENOSPC);
    CHECK(feed.add(rate(3, 1)) == -ENOSPC);
    CHECK(feed.take_news() ==
          "dslaunch: warning: writing to a sink failed: No space left on device (ENOSPC); "
          "training continues, and this monitor lacks the steps that cannot be written");
    CHECK(feed.take_news().empty());
    CHECK(good == std::vector<std::string>{"new 1", "write 1", "write 2", "write 3"});
}

TEST_CASE("CSV files have the bytes that DeepSpeed's csvMonitor writes") {
    const TemporaryFolder folder;
    CsvFiles sink(folder.path());
    REQUIRE(sink.begin(8, true) == 0);
    // tests/fixtures/make_monitors.py has the same rows.
    const std::vector<std::pair<int64_t, double>> rows = {
        {8, 1e-05}, {16, 0.0001}, {24, 3.0}, {32, 1e16}, {40, 0.1}, {48, 123456.0}, {300, 2.5e-08}};
    for (const auto& [samples, value] : rows)
        REQUIRE(sink.write(rate(samples, value), samples) == 0);
    CHECK(folder.read("Train_Samples_lr.csv") ==
          content_of(fixture_path("monitors/csv/Train_Samples_lr.csv")));
}

TEST_CASE("CSV files continue without rows that are written again, whatever was left in them") {
    const std::string head = "step,lr\r\n8,1.0\r\n16,2.0\r\n";
    const std::pair<std::string, std::string> cases[] = {
        {head + "24,3.0\r\n32,4.0\r\n", head + "24,9.0\r\n"},
        {head + "24,3.0\r\n32,4", head + "24,9.0\r\n"},          // torn in a repeated row
        {head + "2", head + "24,9.0\r\n"},                       // torn in a new row
        {head + "step,lr\r\n", head + "step,lr\r\n24,9.0\r\n"},  // DeepSpeed's second header
        {"", "step,lr\r\n24,9.0\r\n"},
        {"step,l", "step,lr\r\n24,9.0\r\n"},
    };
    for (const auto& [before, after] : cases) {
        INFO(before);
        const TemporaryFolder folder;
        std::ofstream(folder.path() + "/Train_Samples_lr.csv", std::ios::binary) << before;
        std::ofstream(folder.path() + "/Train_Samples_other.csv") << "step,other\n8,1\n24,2\n";
        std::ofstream(folder.path() + "/notes.csv") << "100,1\n";
        CsvFiles sink(folder.path());
        REQUIRE(sink.begin(24, false) == 0);
        REQUIRE(sink.write(rate(24, 9), 24) == 0);
        CHECK(folder.read("Train_Samples_lr.csv") == after);
        CHECK(folder.read("Train_Samples_other.csv") == "step,other\n8,1\n");
        CHECK(folder.read("notes.csv") == "100,1\n");
    }
}

TEST_CASE("a new run moves the CSV files of an earlier one away, and twice to two places") {
    const TemporaryFolder folder;
    for (const char* number : {"1.0", "2.0", "3.0"}) {
        CsvFiles sink(folder.path());
        REQUIRE(sink.begin(8, true) == 0);
        REQUIRE(sink.write(rate(8, std::stod(number)), 8) == 0);
    }
    CHECK(folder.read("earlier-1/Train_Samples_lr.csv") == "step,lr\r\n8,1.0\r\n");
    CHECK(folder.read("earlier-2/Train_Samples_lr.csv") == "step,lr\r\n8,2.0\r\n");
    CHECK(folder.read("Train_Samples_lr.csv") == "step,lr\r\n8,3.0\r\n");
}

TEST_CASE("the file for Prometheus is whole, readable by others, and written each second") {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/job.prom";
    FakeClock clock;
    PrometheusFile sink(path, "a\"b", clock);
    REQUIRE(sink.begin(8, true) == 0);
    REQUIRE(sink.write(rate(8, 0.5), 8) == 0);
    const std::string first = folder.read("job.prom");
    CHECK(first.find("# TYPE dslaunch_lr gauge\ndslaunch_lr{run=\"a\\\"b\"} 0.5\n") !=
          std::string::npos);
    CHECK(first.find("dslaunch_samples{run=\"a\\\"b\"} 8\n") != std::string::npos);
    CHECK(first.find("dslaunch_running{run=\"a\\\"b\"} 1\n") != std::string::npos);
    struct stat facts {};
    REQUIRE(::stat(path.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0644);
    REQUIRE(sink.write(rate(16, 0.25), 16) == 0);
    CHECK(folder.read("job.prom") == first);
    clock.sleep_for(std::chrono::seconds(1));
    REQUIRE(sink.write(rate(24, 0.125), 24) == 0);
    CHECK(folder.read("job.prom").find("dslaunch_lr{run=\"a\\\"b\"} 0.125\n") != std::string::npos);
    REQUIRE(sink.write(rate(32, 0.0625), 32) == 0);
    REQUIRE(sink.end() == 0);
    const std::string last = folder.read("job.prom");
    CHECK(last.find("dslaunch_lr{run=\"a\\\"b\"} 0.0625\n") != std::string::npos);
    CHECK(last.find("dslaunch_running{run=\"a\\\"b\"} 0\n") != std::string::npos);
    CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
}

TEST_CASE("monitors refuse a folder that another job uses, a file there, and no right to write") {
    const TemporaryFolder folder;
    const auto code_of = [](const MonitorSettings& settings) {
        try {
            const Monitors monitors(settings, -1);
        } catch (const Error& error) {
            INFO(error.what());
            return error.code();
        }
        return ExitCode::kOk;
    };
    MonitorSettings settings;
    settings.event_folder = settings.csv_folder = folder.path() + "/a/b";
    {
        const Monitors first(settings, -1);  // the same folder for both is no conflict
        CHECK(code_of(settings) == ExitCode::kCheckpoint);
    }
    std::ofstream(folder.path() + "/file") << "x";
    settings.event_folder = folder.path() + "/file";
    CHECK(code_of(settings) == ExitCode::kDisk);
    settings.event_folder = folder.path() + "/file/below";
    CHECK(code_of(settings) == ExitCode::kDisk);
    settings.event_folder.clear();
    settings.prometheus_file = folder.path() + "/nowhere/job.prom";
    CHECK(code_of(settings) == ExitCode::kDisk);
    settings = {};
    settings.prometheus_file = folder.path() + "/job.prom";
    {
        const Monitors first(settings, -1);
        CHECK(code_of(settings) == ExitCode::kCheckpoint);
    }
}

TEST_CASE("the loss scale is an event with fp16 only") {
    for (const bool has_scale : {false, true}) {
        const TemporaryFolder folder;
        MonitorSettings settings;
        settings.event_folder = folder.path();
        settings.has_loss_scale = has_scale;
        Monitors monitors(settings, -1);
        monitors.add(read_metrics(R"({"step": 1, "samples": 2, "loss": 3, "loss_scale": 1024})"));
        monitors.finish(std::chrono::seconds(60));
        CHECK(monitors.take_news().empty());
        CHECK(curves_in(folder.path()).contains("Train/Samples/loss_scale") == has_scale);
        CHECK(curves_in(folder.path()).contains("Train/Samples/train_loss"));
    }
}

}  // namespace dslaunch
