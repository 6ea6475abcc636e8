// The search for meshes, compared with trying every choice.
#include "plan/choose/mesh_search.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "mesh_models.h"
#include "plan/print/mesh_text.h"
#include "support/catch.h"
#include "support/sanitizer.h"

namespace dslaunch {

using namespace plan;

using test::layered_job;

namespace {

MeshRequest uneven_job(std::vector<int> node_sizes) {
    MeshRequest request = layered_job(6, std::move(node_sizes));
    for (size_t s = 0; s < 6; ++s) {
        const double seconds = 1.0 + 0.3 * static_cast<double>(s);
        request.times[s] = {seconds, seconds, 1.5 * seconds};
    }
    request.tensor = TensorCosts{std::vector<bool>(6, true), Bytes{40'000}, Bytes{40'000}};
    request.rates.host_bytes_per_s = 200'000;
    request.rates.link_bytes_per_s = 100'000;
    request.rates.update_numel_per_s = 1e6;
    request.program = Bytes{10'000};
    return request;
}

// Visits all choices, one by one.
template <typename Visit>
void for_each_choice(const MeshRequest& request, int64_t micro_batches, Visit&& visit) {
    int ranks = 0;
    for (const int node : request.node_sizes) ranks += node;
    for (int pipeline = 1; pipeline <= ranks; ++pipeline)
        for (const int tensor : {1, 2})
            for (int data = 1; data <= ranks; ++data)
                for (const int zero : {0, 1, 2, 3})
                    for (const bool recompute : {false, true})
                        for (const ScheduleKind kind : kScheduleKinds) {
                            const bool several = kind == ScheduleKind::kInterleaved ||
                                                 kind == ScheduleKind::kZeroBubbleV;
                            if (several && pipeline == 1) continue;
                            if (pipeline * tensor * data != ranks || pipeline > 6) continue;
                            if (micro_batches % data != 0 || (data == 1 && zero > 0)) continue;
                            visit(MeshChoice{{tensor, 1, data, 0, pipeline},
                                             kind,
                                             several ? 2 : 1,
                                             static_cast<int>(micro_batches / data),
                                             zero,
                                             recompute});
                        }
}

}  // namespace

TEST_CASE("the search finds the shortest step that fits") {
    for (const std::vector<int>& nodes :
         {std::vector<int>{1}, {2}, {3}, {4}, {2, 2}, {3, 1}, {2, 2, 2}})
        for (const int64_t micro_batches : {1, 4, 6, 12})
            // Limits in quarters of one rank's need; 0: no limit.
            for (const int64_t quarters : {0, 6, 3, 2, 1}) {
                MeshRequest request = uneven_job(nodes);
                MeshSearch search;
                search.tensor_sizes = {1, 2};
                search.micro_batches = micro_batches;
                const int64_t whole = 16 * 6 * test::kLayerNumel;
                if (quarters > 0) search.host_memory_max = Bytes{whole * quarters / 4};
                INFO(nodes.size() << " hosts, first " << nodes.front() << ", " << micro_batches
                                  << " micro batches, " << quarters << " quarters");
                double best_s = std::numeric_limits<double>::infinity();
                Bytes least{std::numeric_limits<int64_t>::max()};
                for_each_choice(request, micro_batches, [&](const MeshChoice& choice) {
                    for (const bool limited : {false, true}) {
                        request.rank_memory_max.reset();
                        if (limited) {
                            if (!search.host_memory_max) continue;
                            request.rank_memory_max =
                                Bytes{search.host_memory_max->value /
                                      *std::max_element(nodes.begin(), nodes.end())} -
                                request.program;
                        }
                        try {
                            const MeshCost cost = mesh_cost(request, choice);
                            least = std::min(least, cost.host);
                            if (!search.host_memory_max || cost.host <= *search.host_memory_max)
                                best_s = std::min(best_s, cost.step_s);
                        } catch (const Error&) {
                        }
                    }
                });
                const MeshFindings found = search_meshes(request, search);
                if (best_s == std::numeric_limits<double>::infinity()) {
                    CHECK(found.best.empty());
                    if (least.value < std::numeric_limits<int64_t>::max()) {
                        REQUIRE(found.smallest);
                        CHECK(found.smallest->cost.host == least);
                    }
                    continue;
                }
                REQUIRE(!found.best.empty());
                CHECK(found.best.front().cost.step_s == Approx(best_s));
                CHECK(std::is_sorted(found.best.begin(), found.best.end(),
                                     [](const MeshFinding& a, const MeshFinding& b) {
                                         return a.cost.step_s < b.cost.step_s;
                                     }));
                for (const MeshFinding& finding : found.best) {
                    const MeshSizes& sizes = finding.choice.sizes;
                    CHECK(sizes.data * finding.choice.micro_batches == micro_batches);
                    if (search.host_memory_max) CHECK(finding.cost.host <= *search.host_memory_max);
                }
            }
}

TEST_CASE("a finding's config says its sizes, and keeps the global batch") {
    MeshChoice choice{{2, 1, 4, 0, 3}, ScheduleKind::kZeroBubbleH1, 1, 6, 2, true};
    const nlohmann::json config = nlohmann::json::parse(mesh_config(choice, 5, 12));
    CHECK(config.at("train_micro_batch_size_per_gpu") == 5);
    CHECK(config.at("gradient_accumulation_steps") == 6);
    CHECK(config.at("train_batch_size") == 5 * 6 * 4);
    CHECK(config.at("zero_optimization").at("stage") == 2);
    CHECK(config.at("activation_checkpointing").at("number_checkpoints") == 12);
    CHECK(config.at("dslaunch").at("pipeline") ==
          nlohmann::json{{"stages", 3}, {"schedule", "zb-h1"}});
    CHECK(config.at("dslaunch").at("tensor") == nlohmann::json{{"size", 2}});
    CHECK(!config.at("dslaunch").contains("sequence"));
    choice = {{1, 1, 4, 0, 1}, ScheduleKind::k1F1B, 1, 6, 0, false};
    const nlohmann::json plain = nlohmann::json::parse(mesh_config(choice, 5, 12));
    CHECK(plain.at("dslaunch").empty());
    CHECK(!plain.contains("activation_checkpointing"));
}

TEST_CASE("a table of meshes is as wide as the terminal, in two parts where it must be") {
    const MeshRequest request = layered_job(6, {4, 4});
    MeshFinding finding;
    finding.choice.sizes = {.data = 4, .pipeline = 2};
    finding.choice.schedule = ScheduleKind::kInterleaved;
    finding.choice.chunks = 2;
    finding.choice.micro_batches = 4;
    finding.choice.zero_stage = 3;
    finding.cost = mesh_cost(request, finding.choice);
    const auto rows = [&](size_t columns) {
        std::vector<std::string> lines;
        std::istringstream text(meshes_table(std::vector{finding, finding}, columns));
        for (std::string line; std::getline(text, line);) lines.push_back(line);
        return lines;
    };
    const std::vector<std::string> whole = rows(0), narrow = rows(80);
    REQUIRE(whole.size() == 4);
    CHECK(whole[0] == "mesh: pipeline x data x tensor x sequence");
    INFO(whole[1] << "\n" << whole[2]);
    CHECK(whole[2].starts_with("2x4x1x1     3  no         interleaved "));
    CHECK(narrow.size() > whole.size());
    for (const std::string& line : narrow) CHECK(line.size() <= 80);
    CHECK(std::ranges::count(narrow, std::string("mesh: pipeline x data x tensor x sequence")) ==
          1);
    CHECK(std::ranges::count_if(
              narrow, [](const std::string& line) { return line.starts_with("2x4x1x1 "); }) == 4);
}

TEST_CASE("a thousand ranks are searched within ten seconds") {
    MeshRequest request = layered_job(48, std::vector<int>(128, 8));
    MeshSearch search;
    search.micro_batches = 1024;
    // Processor time of this process: other work matters only by its use of the caches.
    const std::clock_t begin = std::clock();
    const MeshFindings found = search_meshes(request, search);
    const double took_s = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    CHECK(found.best.size() == 5);
    INFO(found.looked_at << " choices");
    if (!test::kSanitized) CHECK(took_s < 10);
}

}  // namespace dslaunch
