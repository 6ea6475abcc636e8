// The page of `dslaunch report --html` for folders that are complete, damaged or hostile.
#include "launcher/report/html_page.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "launcher/jobs/report.h"
#include "launcher/report/html_report.h"
#include "launcher/report/run_folder.h"
#include "launcher/run/commands.h"
#include "launcher/top/job_view.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launcher;
using namespace dslaunch::test;

namespace {

// Writes the folder of a small run whose model is NAME, with LR in its config.
void write_run(const std::string& folder, const std::string& name, const std::string& lr) {
    const auto quoted = [](const std::string& text) { return nlohmann::json(text).dump(); };
    write_file(folder + "/run.json",
               fmt::format(
                   R"({{"target": {}, "world_size": 2, "restarts": 1, "exit_code": 0,
"started_at": 1764000000, "ended_at": 1764000100,
"nodes": [{{"name": {}, "host_name": "te1", "cores": 8, "gpus": 0, "version": "0.1.0"}}],
"ranks": [{{"rank": 0, "host": "te1", "pid": 11}}, {{"rank": 1, "host": "te1", "pid": 12}}],
"run": {{"parameters": 940800, "config": {{"values": [
{{"path": "optimizer.params.lr", "value": {}, "origin": "option --lr"}},
{{"path": "dslaunch.steps", "value": 3, "origin": {}}},
{{"path": "zero_optimization.stage", "value": 0, "origin": "default"}}]}}}},
"result": {{"memory": {{"place": "a rank", "estimated_bytes": 190840832,
"measured_bytes": 193357414}}}}}})",
                   quoted(name), quoted(name), lr, quoted(name)));
    write_file(folder + "/metrics.jsonl",
               "{\"step\": 1, \"loss\": 6.25, \"lr\": 0.002, \"step_ms\": 90, "
               "\"tokens_per_s\": 1000, \"peak_rss_bytes\": 1048576}\n"
               "{\"step\": 2, \"loss\": 5.5, \"lr\": 0.002, \"step_ms\": 50, "
               "\"tokens_per_s\": 2345, \"peak_rss_bytes\": 3145728}\n"
               "{\"step\": 2, \"eval_loss\": 5.75}\n");
    write_file(folder + "/logs/rank-0.log", "21:48:30.167 data: " + name + ": 1874 samples\n" +
                                                "21:48:36.537 warning train: a slow disk\n");
}

std::string page_of(const std::vector<std::string>& paths) {
    std::vector<RunFolder> runs;
    for (const std::string& path : paths) runs.push_back(read_run_folder(path, nullptr));
    name_apart(runs);
    return html_page(runs, "made");
}

}  // namespace

TEST_CASE("a report on a job shows no run.json of another job as its own") {
    TemporaryFolder folder;
    write_run(folder.path() + "/run", "train.pt", "0.002");
    const std::string path = folder.path() + "/run/run.json";
    const std::string content = content_of(path);
    KnownJob job;
    job.id = "cafe0001";
    job.output = folder.path() + "/run";
    job.exit_code = 66;
    for (const char* owner : {"cafe0002", "cafe0001"}) {
        const bool is_own = job.id == owner;
        INFO(owner);
        write_file(path, "{\"job_id\": \"" + std::string(owner) + "\", " + content.substr(1));
        NameMask mask;
        const std::string text = report_text(job_report(job, mask), mask);
        CHECK(mentions(text, "optimizer.params.lr") == is_own);
        CHECK(mentions(text, "belongs to another run") == !is_own);
        const RunFolder run = read_run_folder(job.output, &job);
        CHECK(mentions(join(run.problems, "\n"), "run.json belongs to job cafe0002") == !is_own);
        CHECK(PlannedSteps().of(job) == (is_own ? std::optional<int64_t>(3) : std::nullopt));
    }
}

TEST_CASE("a page shows the memory of a run whose run.json has none from its log") {
    TemporaryFolder folder;
    write_file(folder.path() + "/run/run.json", "{\"run\": {\"config\": {\"values\": []}}}");
    write_file(folder.path() + "/run/logs/rank-0.log",
               "21:48:41.534 train: memory of a rank: 182.0 MiB estimated, 184.4 MiB measured at "
               "most, 1.01 of it\n");
    const RunFolder run = read_run_folder(folder.path() + "/run", nullptr);
    CHECK(run.predicted_memory == "182.0 MiB");
    CHECK(run.measured_memory == "184.4 MiB");
}

TEST_CASE("a page tells a run's facts, curves, memory, hosts and config") {
    TemporaryFolder folder;
    write_run(folder.path() + "/run-a", "train.pt", "0.002");
    const std::string page = page_of({folder.path() + "/run-a"});
    for (const char* word : {"<h1>run-a</h1>",
                             "ok, after 1 restart",
                             "940,800",
                             "2 ranks on 1 host",
                             "1874 samples",
                             "5.5 (least 5.5 at step 2)",
                             "5.75 (least 5.75 at step 2)",
                             "2,345",
                             "3.0 MiB",
                             "100 s",
                             "182.0 MiB",
                             "184.4 MiB",
                             "a slow disk",
                             "te1",
                             "option --lr",
                             "0.002",
                             "1 key with the default",
                             "class=\"curve c0 d0\"",
                             "held-out loss, step 2: 5.75",
                             "default-src 'none'"})
        CHECK(mentions(page, word));
    // The page loads nothing and runs nothing.
    for (const char* word : {"<script", "http:", "https:", "src=", "url(", "@import"})
        CHECK_FALSE(mentions(page, word));
    CHECK_FALSE(mentions(page, "What differs"));
}

TEST_CASE("runs side by side have curves of different looks, and a table of what differs") {
    TemporaryFolder folder;
    write_run(folder.path() + "/x/run", "train.pt", "0.002");
    write_run(folder.path() + "/y/run", "train.pt", "0.004");
    const std::string page = page_of({folder.path() + "/x/run", folder.path() + "/y/run"});
    CHECK(mentions(page, "What differs in the configs"));
    CHECK(mentions(page, "<th scope=\"row\">optimizer.params.lr</th><td>0.002</td><td>0.004</td>"));
    CHECK_FALSE(mentions(page, "<th scope=\"row\">dslaunch.steps</th><td>3</td><td>3</td>"));
    CHECK(mentions(page, "curve c1 d0"));
    CHECK(mentions(page, folder.path() + "/x/run"));  // equal names are shown as paths
    CHECK(mentions(page, "<h1>2 runs</h1>"));
}

TEST_CASE("names in a folder cannot become markup") {
    TemporaryFolder folder;
    const std::string evil = "</script><script>alert(1)</script>\"><img src=x onerror=alert(1)>";
    write_run(folder.path() + "/</h1><img src=x>", evil, "0.1");
    write_run(folder.path() + "/b", evil, "0.2");
    const std::string page = page_of({folder.path() + "/</h1><img src=x>", folder.path() + "/b"});
    CHECK(mentions(page, "&lt;script&gt;"));
    for (const char* word : {"<script", "<img", "</script", "<h1></h1>"})
        CHECK_FALSE(mentions(page, word));
}

TEST_CASE("what is missing or damaged is told, and the rest is shown") {
    TemporaryFolder folder;
    const std::string run = folder.path() + "/run";
    write_run(run, "train.pt", "0.002");
    const std::vector<std::tuple<std::string, std::string, std::string>> damages = {
        {"run.json", "{\"target\": [", "run.json: cannot be read"},
        {"run.json", "[]", "run.json: cannot be read"},
        {"run.json", "{\"nodes\": 7, \"ranks\": [null, 3], \"run\": null}", "no config"},
        {"run.json", "{\"nodes\": [3], \"run\": {\"config\": 5}}", "5.5 (least"},
        {"metrics.jsonl", "{\"step\": 1, \"loss\": 2}\n{\"step\"", "skipped 1 damaged line"},
        {"metrics.jsonl", "", "has no step yet"},
        {"logs/rank-0.log", std::string("\0\xff<b>", 5), "last lines of rank 0"},
        {"trace.json", "{}", "trace.json: cannot be read"},
        {"trace.json", "{\"traceEvents\": [{\"ph\": 1}]}", "trace.json: cannot be read"},
    };
    for (const auto& [file, content, told] : damages) {
        INFO(file << ": " << content);
        const std::string before = content_of(run + "/" + file);
        write_file(run + "/" + file, content);
        CHECK(mentions(page_of({run}), told));
        write_file(run + "/" + file, before);
        if (file == "trace.json") std::filesystem::remove(run + "/" + file);
    }
    for (const char* file : {"run.json", "metrics.jsonl", "logs/rank-0.log"})
        std::filesystem::remove(run + "/" + file);
    const std::string page = page_of({run});  // the empty folder logs/ remains
    for (const char* told :
         {"run.json: cannot be read", "metrics.jsonl: missing", "logs/rank-0.log: cannot be read"})
        CHECK(mentions(page, told));
}

TEST_CASE("a traced step shows its lanes, measured and predicted") {
    TemporaryFolder folder;
    write_run(folder.path(), "train.pt", "0.002");
    const auto event = [](int pid, int lane, int begin_us, int length_us) {
        return fmt::format(
            "{{\"ph\": \"X\", \"pid\": {}, \"tid\": {}, \"name\": \"n\", \"cat\": "
            "\"forward\", \"ts\": {}, \"dur\": {}}}",
            pid, lane, begin_us, length_us);
    };
    write_file(
        folder.path() + "/trace.json",
        fmt::format("{{\"traceEvents\": [{{\"ph\": \"M\", \"pid\": 0, \"tid\": 0, \"name\": "
                    "\"thread_name\", \"args\": {{\"name\": \"compute\"}}}}, {}, {}, {}]}}",
                    event(0, 0, 0, 10'000), event(0, 0, 20'000, 10'000), event(1, 0, 0, 25'000)));
    const std::string page = page_of({folder.path()});
    CHECK(mentions(page, "<th scope=\"row\">compute</th><td>20.00</td><td>25.00</td>"));
    CHECK(mentions(page, "<th scope=\"row\">whole step</th><td>30.00</td><td>25.00</td>"));
    // 30 ms fill the width of 1120 - 20 pixels: the second bar begins at two thirds.
    CHECK(mentions(page, "x=\"733.3\" y=\"15\" width=\"366.7\""));
}

TEST_CASE("report --html refuses what it cannot mean, and keeps an existing page") {
    TemporaryFolder folder;
    const std::string run = folder.path() + "/run", page = folder.path() + "/page.html";
    write_run(run, "train.pt", "0.002");
    const auto refusal = [](ExitCode code, const std::vector<std::string>& words) {
        return error_of(code, [&] { (void)report_command(words); });
    };
    CHECK(mentions(refusal(ExitCode::kUsage, {"--html"}), "needs the --output folders"));
    CHECK(mentions(refusal(ExitCode::kUsage, {run, run}), "--html compares runs"));
    CHECK(mentions(refusal(ExitCode::kUsage, {"--html", run, "--json"}), "--html"));
    CHECK(mentions(refusal(ExitCode::kInput, {"--html", folder.path() + "/none", "-o", page}),
                   "no such folder"));
    CHECK(mentions(refusal(ExitCode::kInput, {"--html", folder.path(), "-o", page}),
                   "neither run.json"));
    CHECK(report_command(std::vector<std::string>{"--html", run, "-o", page}) == 0);
    CHECK(content_of(page).starts_with("<!doctype html>"));
    write_file(page, "mine");
    CHECK(mentions(refusal(ExitCode::kInput, {"--html", run, "-o", page}), "exists"));
    CHECK(content_of(page) == "mine");
    CHECK(report_command(
              std::vector<std::string>{"--html", run + "/run.json", "-o", page, "--force"}) == 0);
    CHECK(content_of(page).starts_with("<!doctype html>"));
    CHECK(mentions(refusal(ExitCode::kDisk, {"--html", run, "-o", run}), "is a folder"));
    CHECK(mentions(refusal(ExitCode::kDisk, {"--html", run, "-o", run + "/"}),
                   "-o " + run + "/report.html"));
    CHECK(mentions(refusal(ExitCode::kUsage, {"--html", run, "-o", "r.pdf"}),
                   "the page is HTML: name it r.html; a browser prints it as PDF"));
    CHECK(mentions(refusal(ExitCode::kUsage, {run, "-o", "r.pdf"}), "name it FILE.txt or r.html"));
    CHECK(
        mentions(refusal(ExitCode::kUsage, {run, "-o", page, "--json"}), "--json is for the text"));
    CHECK(mentions(refusal(ExitCode::kUsage, {run, "--force"}), "--force is for -o FILE"));
}

TEST_CASE("a report goes into the file that -o names, as a page if the name is of HTML") {
    TemporaryFolder folder;
    const std::string run = folder.path() + "/run";
    write_run(run, "train.pt", "0.002");
    const auto report = [&](const std::vector<std::string>& words) {
        return report_command(words);
    };
    CHECK(report({run, "-o", folder.path() + "/a.html"}) == 0);
    CHECK(report({"--html=" + folder.path() + "/b.htm", run}) == 0);
    for (const char* page : {"/a.html", "/b.htm"})
        CHECK(content_of(folder.path() + page).starts_with("<!doctype html>"));
    CHECK(report({run, "-o", folder.path() + "/r.txt"}) == 0);
    CHECK(mentions(content_of(folder.path() + "/r.txt"), "run.json"));
    CHECK(report({run, "-o", folder.path() + "/r.json"}) == 0);
    CHECK_NOTHROW(nlohmann::json::parse(content_of(folder.path() + "/r.json")));
    CHECK(mentions(error_of(ExitCode::kInput,
                            [&] {
                                (void)report({run, "-o", folder.path() + "/r.txt"});
                            }),
                   "--force"));
}
