// The screens of `dslaunch top`.
#include "launcher/top/job_screen.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/screen.h"
#include "base/text.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

JobView view_of(const KnownJob& job) {
    PlannedSteps planned;
    return view_job(job, planned);
}

// Returns a running job with its files in FOLDER: 100 steps of 50 ms, step 40 done.
KnownJob running_job(const TemporaryFolder& folder, int ranks) {
    KnownJob job;
    job.id = "3f2a9c1e77b0d0aa";
    job.folder = folder.path() + "/record";
    job.output = folder.path() + "/out";
    job.target = "/models/train.pt";
    job.state = "running";
    job.lives = true;
    job.started_at_s = 1000;
    job.world_size = ranks;
    job.hosts = {{"te1", "me", 0, ""}};
    job.host_ranks = {ranks};
    std::string lines;
    for (int step = 1; step <= 40; ++step)
        lines += fmt::format(
            "{{\"step\": {0}, \"loss\": {1}, \"lr\": 0.001, \"step_ms\": 50, \"tokens_per_s\": "
            "12345, \"lane_wait_ms\": 7, \"data_wait_ms\": 1, \"mfu\": 0.41, \"rss_bytes\": "
            "1048576, \"peak_rss_bytes\": 2097152, \"tier_bytes\": {{\"memory\": 4194304, "
            "\"disk\": 0}}, \"link_bytes\": {{\"sent\": {2}, \"received\": {2}}}}}\n",
            step, 41 - step, step * 1024);
    write_file(job.output + "/metrics.jsonl", lines + "{\"step\": 41, \"lo");
    write_file(
        job.output + "/run.json",
        "{\"job_id\": \"" + job.id +
            "\", \"run\": {\"config\": {\"values\": [{\"path\": \"dslaunch.steps\", \"value\": "
            "100}]}}}");
    std::string entries;
    for (int rank = 0; rank < ranks; ++rank)
        entries += fmt::format(
            "{}{{\"rank\": {}, \"host\": \"te1\\u001b[2J\", \"pid\": 1, \"state\": \"running\", "
            "\"heard_ms\": 400, \"where\": \"step 41, compute: Forward of a segment with a very "
            "long name that no terminal has room for\", \"steps\": 40.0, \"busy_ms\": "
            "{{\"compute\": 1800}}}}",
            rank == 0 ? "" : ",", rank);
    write_file(job.folder + "/ranks.json", "{\"ranks\": [" + entries + "]}");
    return job;
}

}  // namespace

TEST_CASE("top shows steps, loss, speed, memory, links and ranks of a job") {
    TemporaryFolder folder;
    const JobView view = view_of(running_job(folder, 2));
    CHECK(view.step() == 40);
    CHECK(view.left_s() == 3.0);  // 60 steps of 50 ms
    CHECK(view.newest_growth("link_bytes.sent") == 1024.0);
    const std::string text = join(job_screen(view, 1100, {160, 0}), "\n");
    for (const char* word :
         {"job 3f2a9c1e77b0d0aa  train.pt  running  2 ranks on 1 host  100 s",
          "step 40 of 100  loss 1.0000  lr 0.001  left 0:00:03", "12345 tokens/s  50 ms a step",
          "waits: 7 ms for lanes, 1 ms for data  MFU 41 %", "memory 1.0 MiB  (peak 2.0 MiB)",
          "planned for rank 0: memory 4.0 MiB", "links 1.0 KiB sent, 1.0 KiB received a step",
          "steps 1 to 40", "45.0"})
        CHECK(mentions(text, word));
    const auto json = nlohmann::json::parse(views_json({&view, 1}, 1100));
    CHECK(json["jobs"][0]["step"] == 40);
    CHECK(json["jobs"][0]["steps"] == 100);
    CHECK(json["jobs"][0]["mfu"] == 0.41);
    CHECK(json["jobs"][0]["ranks"][1]["lane_ms"]["compute"] == 45.0);
}

TEST_CASE("top shows neither steps nor places of ranks once their job has ended") {
    TemporaryFolder folder;
    KnownJob job = running_job(folder, 2);
    job.state = "ended";
    job.lives = false;
    const std::string text = join(job_screen(view_of(job), 1100, {160, 0}), "\n");
    CHECK(mentions(text, "rank  host"));
    for (const char* word : {"where", "heard", "compute", "40.0"})
        CHECK_FALSE(mentions(text, word));
}

TEST_CASE("no line of top is wider than the terminal, and ranks that do not fit are counted") {
    TemporaryFolder folder;
    const JobView view = view_of(running_job(folder, 40));
    for (const size_t columns : {80U, 100U, 200U}) {
        for (const std::string& line : job_screen(view, 1100, {columns, 24})) {
            CHECK(columns_of(line) <= columns);
            CHECK_FALSE(mentions(line, "\x1b"));  // a host's name does not control the terminal
        }
        for (const std::string& line : jobs_screen({&view, 1}, 1100, {columns, 24}))
            CHECK(columns_of(line) <= columns);
    }
    // A terminal may have any size, however small.
    for (const size_t columns : {1U, 7U, 30U})
        for (const size_t rows : {1U, 2U, 9U, 10U})
            for (const std::string& line : job_screen(view, 1100, {columns, rows}))
                CHECK(columns_of(line) <= columns);
    const auto lines = job_screen(view, 1100, {80, 24});
    CHECK(lines.size() == 24);
    // 8 lines, the table's head and 14 ranks are shown, so 26 ranks are not.
    CHECK(lines.back() == "and 26 more ranks");
}

TEST_CASE("top shows a job that has no files yet") {
    TemporaryFolder folder;
    KnownJob job = running_job(folder, 1);
    job.output = folder.path() + "/none";
    job.folder = folder.path() + "/none";
    const JobView view = view_of(job);
    CHECK_FALSE(view.step().has_value());
    CHECK(mentions(join(job_screen(view, 1001, {80, 24}), "\n"), "no step yet"));
    CHECK(nlohmann::json::parse(views_json({&view, 1}, 1001))["jobs"][0]["loss"].is_null());
}

TEST_CASE("a sparkline has one block for each part of the steps") {
    MetricSeries series;
    for (int i = 0; i < 8; ++i) series.push_back({double(i), double(i)});
    CHECK(sparkline(series, 8) == "▁▂▃▄▅▆▇█");
    CHECK(sparkline(series, 2) == "▁█");
    CHECK(sparkline({}, 8).empty());
    CHECK(sparkline({{1, 3}}, 8) == "▁");
}
