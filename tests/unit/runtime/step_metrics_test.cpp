// A line of metrics.jsonl, compared with numbers that were computed by hand.
#include "runtime/train/step_metrics.h"

#include <nlohmann/json.hpp>

#include "runtime/train/reporter.h"
#include "runtime/train/step_facts.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"
#include "support/world.h"

namespace dslaunch {

using namespace runtime;
using Json = nlohmann::json;

namespace {

StepMetrics half_a_second() {
    StepMetrics metrics;
    metrics.step = 7;
    metrics.loss = 1.5;
    metrics.step_ms = 500;
    metrics.samples = 12;
    metrics.forward_flops = 1'000'000'000'000;
    return metrics;
}

}  // namespace

TEST_CASE("a step's speed is that of all ranks, its flops are three forwards") {
    StepMetrics metrics = half_a_second();
    metrics.tokens_per_sample = 32;
    metrics.peak_tflops = 60;
    metrics.peak_source = "stated";
    const Json line = Json::parse(metrics_line(metrics));
    CHECK(line.at("step") == 7);
    CHECK(line.at("loss") == 1.5);
    CHECK(line.at("samples_per_s") == 24.0);
    CHECK(line.at("tokens_per_s") == 24.0 * 32);
    CHECK(line.at("tflops") == 6.0);
    CHECK(line.at("mfu") == 0.1);
    CHECK(line.at("peak_tflops") == 60.0);
    CHECK(line.at("peak_from") == "stated");
}

TEST_CASE("what a step does not have is null, or is left out") {
    const Json line = Json::parse(metrics_line(half_a_second()));
    for (const char* key : {"grad_norm", "tokens_per_s", "mfu"}) CHECK(line.at(key).is_null());
    for (const char* key : {"skipped", "disk_bytes", "disk_checksum_ms", "peak_from"})
        CHECK(!line.contains(key));
    StepMetrics metrics = half_a_second();
    metrics.gradient_norm = 0.25;
    metrics.skipped = true;
    metrics.disk = DiskTraffic{Bytes{3}, Bytes{4}, {}};
    const Json full = Json::parse(metrics_line(metrics));
    CHECK(full.at("grad_norm") == 0.25);
    CHECK(full.at("skipped") == true);
    CHECK(full.at("disk_bytes") == Json{{"read", 3}, {"written", 4}});
}

TEST_CASE("a rate says something however slow or fast it is") {
    CHECK(rate_text(123456.7, "token") == "123457 tokens/s");
    CHECK(rate_text(99.96, "token") == "100 tokens/s");
    CHECK(rate_text(1.234, "sample") == "1.23 samples/s");
    CHECK(rate_text(0.25, "sample") == "0.25 samples/s");
    CHECK(rate_text(0.031, "sample") == "0.031 samples/s");
}

TEST_CASE("memory is the state's account, and the plan's where the state has none") {
    StepMetrics metrics = half_a_second();
    metrics.memory.parameters = Bytes{10};
    metrics.memory.moments = Bytes{20};
    metrics.kind_peaks[static_cast<size_t>(plan::BufferKind::kActivations)] = Bytes{30};
    metrics.kind_peaks[static_cast<size_t>(plan::BufferKind::kParameters)] = Bytes{40};
    metrics.tier_peaks[0].peak = Bytes{50};
    metrics.links = {Bytes{60}, Bytes{70}};
    const Json line = Json::parse(metrics_line(metrics));
    CHECK(line.at("memory").at("parameters") == 10);
    CHECK(line.at("memory").at("moments") == 20);
    CHECK(line.at("memory").at("activations") == 30);
    CHECK(line.at("tier_bytes").at(std::string(plan::tier_name(plan::Tier{}))) == 50);
    CHECK(line.at("link_bytes") == Json{{"sent", 60}, {"received", 70}});
}

TEST_CASE("a step's bytes between hosts stand by kind, beside the plan's, and by host") {
    StepMetrics metrics = half_a_second();
    TrafficTable::Row& row = metrics.step_links.moved.by_host[2];
    row[static_cast<size_t>(TrafficKind::kReduce)] = {Bytes{3}, Bytes{4}};
    row[static_cast<size_t>(TrafficKind::kControl)] = {Bytes{5}, Bytes{6}};
    metrics.step_links.planned[static_cast<size_t>(TrafficKind::kReduce)] = Bytes{3};
    metrics.step_links.planned[static_cast<size_t>(TrafficKind::kGather)] = Bytes{7};
    const Json links = Json::parse(metrics_line(metrics)).at("step_link_bytes");
    CHECK(links.at("by_kind") == Json{{"reduce", {{"sent", 3}, {"received", 4}, {"planned", 3}}},
                                      {"gather", {{"sent", 0}, {"received", 0}, {"planned", 7}}},
                                      {"control", {{"sent", 5}, {"received", 6}}}});
    CHECK(links.at("by_host") == Json{{"2", {{"sent", 8}, {"received", 10}}}});
    CHECK(links_text(metrics.step_links, 1) ==
          "reduce 3 B as planned, gather 0 B (planned: 7 B), control 5 B; 8 B to host 2");
    CHECK(links_text({}, 1).empty());

    testing::InProcessWorld world({.node_sizes = {2, 1}}, [](ArenaLayout&) {});
    testing::run_world(world, [&](testing::InProcessRank& self, int rank) {
        RankFacts mine;
        mine.loss = rank;
        mine.end = rank == 2;
        const StepFacts all = gather_facts(*self.collectives, 1, mine, SavePhase::kWritten,
                                           rank == 1 ? metrics.step_links : StepLinks{});
        if (rank > 0) return;
        CHECK(all.loss == 1);
        CHECK(all.end);
        CHECK((all.saves == std::vector<SavePhase>(3, SavePhase::kWritten)));
        CHECK((all.links.moved.by_host == metrics.step_links.moved.by_host));
        CHECK(all.links.planned == metrics.step_links.planned);
    });
}

TEST_CASE("a worker without a launcher leaves an earlier run's files until it has something new") {
    const test::TemporaryFolder folder;
    const std::string run = folder.path() + "/run.json";
    const std::string metrics = folder.path() + "/metrics.jsonl";
    test::write_file(run, "earlier");
    test::write_file(metrics, "earlier\n");
    const auto reporter = make_file_reporter(folder.path());
    reporter->run_info("{}");
    CHECK(test::content_of(run) == "earlier");
    CHECK(test::content_of(metrics) == "earlier\n");
    reporter->ready();
    CHECK(Json::parse(test::content_of(run)).at("run") == Json::object());
    reporter->metrics("{\"step\": 1}");
    reporter->metrics("{\"step\": 2}");
    CHECK(test::content_of(metrics) == "{\"step\": 1}\n{\"step\": 2}\n");
    reporter->run_result("{}");
    CHECK(Json::parse(test::content_of(run)).at("result") == Json::object());
}

}  // namespace dslaunch
