// The output of a training on a terminal and in a file: five lines before the first step, then a
// line that is updated in place. The rest is in the folder of the run.
#include "base/text.h"
#include "support/catch.h"
#include "support/pty_process.h"
#include "support/train_job.h"

namespace dslaunch::test {

namespace {

// Returns the lines of TEXT that a terminal shows in the end, up to the first line that begins with
// WORD. Of a line that was updated, only the last version is returned.
std::vector<std::string> lines_before(const std::string& text, const std::string& word) {
    constexpr std::string_view kErase = "\x1b[J";
    std::vector<std::string> lines;
    for (std::string& line : split(text, '\n')) {
        if (line.ends_with('\r')) line.pop_back();
        line.erase(0, line.rfind('\r') + 1);
        if (line.starts_with(kErase)) line.erase(0, kErase.size());
        if (line.starts_with(word)) return lines;
        lines.push_back(std::move(line));
    }
    FAIL("no line begins with " << word << " in\n" << text);
    return lines;
}

// Returns the component that each line of a log names, after a prefix of PREFIX characters.
std::vector<std::string> components(const std::vector<std::string>& lines, size_t prefix) {
    std::vector<std::string> names;
    for (const std::string& line : lines)
        names.push_back(line.substr(prefix, line.find(": ") - prefix));
    return names;
}

const std::vector<std::string> kOneRank = {"--num_gpus", "1"};
const std::vector<std::string> kShown = {"model", "data", "run", "output", "ready"};

}  // namespace

TEST_CASE("a plain run shows five lines before step 1, and keeps the others in its folder") {
    const TemporaryFolder folder;
    const TrainResult result =
        train(folder, kOneRank, fixture_archive("gpt"), fixture_config(fixture_facts("gpt"), 1, 2));
    INFO(result.err);
    REQUIRE(result.code == 0);
    constexpr size_t kPrefix = std::string_view("[0] 00:00:00.000 ").size();
    CHECK(components(lines_before(result.err, "step 1/2  "), kPrefix) == kShown);
    CHECK_THAT(result.err, Catch::Contains("] ") && !Catch::Contains("\x1b"));
    const std::string log = folder.read("out/logs/rank-0.log");
    for (const char* words : {" detail ranks: 1 on 1 host, ", " detail model: ",
                              " instructions per step", " detail memory: ", " detail config: "})
        CHECK_THAT(log, Catch::Contains(words));
    CHECK_THAT(result.err, !Catch::Contains(" detail "));
}

TEST_CASE("a terminal shows the same without times, and a line that moves until the end") {
    const TemporaryFolder folder;
    Json config = fixture_config(fixture_facts("gpt"), 1, 10'000'000);
    config["steps_per_print"] = 10'000'000;
    PtyProcess job(training_command(folder, kOneRank, fixture_archive("gpt"), config), 1000);
    const bool moved = job.wait_for(" ms/step  ") && job.wait_for("\x1b[J\r\rstep ");
    INFO(job.shown());
    REQUIRE(moved);
    job.type("\x03");
    CHECK(job.wait() == 76);
    const std::string shown = job.shown();
    const std::vector<std::string> lines = lines_before(shown, "step 1/10000000  ");
    CHECK(components(lines, 0) == kShown);
    // At the end, the updated line is erased, and no line of the report follows it on the same
    // line.
    const std::string end = shown.substr(shown.rfind("\x1b[J") + 3);
    CHECK_THAT(end, Catch::Contains("dslaunch: interrupted"));
    CHECK(end.ends_with("\n"));
}

TEST_CASE(
    "--log-level debug shows the details too, and --quiet neither them nor a line that moves") {
    const TemporaryFolder folder;
    const Json config = fixture_config(fixture_facts("gpt"), 1, 2);
    std::vector<std::string> options = kOneRank;
    options.insert(options.end(), {"--log-level", "debug"});
    const TrainResult debug = train(folder, options, fixture_archive("gpt"), config);
    INFO(debug.err);
    CHECK(debug.code == 0);
    CHECK_THAT(debug.err, Catch::Contains(" detail model: ") && Catch::Contains("detail ranks: "));
    const TemporaryFolder other;
    options = kOneRank;
    options.emplace_back("--quiet");
    PtyProcess quiet(training_command(other, options, fixture_archive("gpt"), config), 1000);
    CHECK(quiet.wait() == 0);
    CHECK(quiet.shown().starts_with("trained 2 steps, loss "));
}

}  // namespace dslaunch::test
