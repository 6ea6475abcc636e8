// The folder of a real run: its loss.svg, its page, and the output of `dslaunch top` about it.
#include "support/catch.h"
#include "support/pty_process.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

// Returns VALUE as the page writes numbers: with up to four digits.
std::string page_number(double value) {
    return fmt::format("{:.4g}", value);
}

}  // namespace

TEST_CASE("the folder of a real run gives a page and a picture with its numbers") {
    TemporaryFolder folder;
    const Json facts = fixture_facts("mlp");
    const Json config = fixture_config(facts, 1, 6);
    const TrainResult trained = train(folder, {"--num_gpus", "2"}, fixture_archive("mlp"), config);
    INFO(trained.err);
    REQUIRE(trained.code == 0);
    const std::vector<double> losses = trained.losses();
    REQUIRE(losses.size() == 6);
    const std::string out = folder.path() + "/out", page = folder.path() + "/page.html";
    CHECK(mentions(content_of(out + "/loss.svg"), "</svg>"));
    CHECK(mentions(content_of(out + "/loss.svg"), page_number(losses.back()) + " at step 6"));

    JobProcess report(folder, {kDslaunch, "report", "--html", out, "-o", page});
    REQUIRE(report.wait() == 0);
    const std::string html = content_of(page);
    for (const std::string& word :
         {page_number(losses.front()) + " at step 1", page_number(losses.back()),
          std::string("<td>ok</td>"), std::string("2 ranks on 1 host"),
          std::string("optimizer.params.lr"), std::string("<td>0.001</td>"),
          std::string("predicted for a rank")})
        CHECK(mentions(html, word));
    CHECK_FALSE(mentions(html, "Missing or damaged"));

    JobProcess top(folder, {kDslaunch, "top", out});
    REQUIRE(top.wait() == 0);
    CHECK(mentions(top.out(), "step 6 of 6"));
    CHECK(mentions(top.out(), fmt::format("loss {:.4f}", losses.back())));
    // On a terminal, `dslaunch top` shows the screen of an ended job once, and leaves it there.
    PtyProcess shown({kDslaunch, "top", out}, 80);
    CHECK(shown.wait() == 0);
    CHECK(mentions(shown.shown(), "step 6 of 6"));
}

TEST_CASE("q and Ctrl-C leave `dslaunch top`, and the job goes on") {
    TemporaryFolder folder;
    const Json config = fixture_config(fixture_facts("mlp"), 1, 1'000'000);
    JobProcess job(folder,
                   training_command(folder, {"--num_gpus", "1"}, fixture_archive("mlp"), config));
    const std::string out = folder.path() + "/out";
    REQUIRE(wait_until([&] { return !content_of(out + "/metrics.jsonl").empty(); }));
    for (const char* key : {"q", "\x03"}) {
        PtyProcess top({kDslaunch, "top", out}, 100);
        CHECK(top.wait_for("q leaves"));
        CHECK(top.wait_for("of 1,000,000"));
        top.type(key);
        CHECK(top.wait() == 0);
        CHECK(mentions(top.shown(), "\x1b[?1049l"));  // the earlier screen is shown again
        const size_t written = content_of(out + "/metrics.jsonl").size();
        CHECK(wait_until([&] { return content_of(out + "/metrics.jsonl").size() > written; }));
    }
    ::kill(job.pid(), SIGTERM);
    CHECK(job.wait() == 76);
    CHECK(mentions(content_of(out + "/loss.svg"), "</svg>"));
}

}  // namespace dslaunch::test
