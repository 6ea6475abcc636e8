// `dslaunch plan --compare cache` prints the bytes that each rule of the swap buffers moves.
#include <algorithm>
#include <map>

#include "plan_runs.h"

namespace dslaunch::test {

TEST_CASE("no rule that plan compares moves less than the least, and none has less than no hits") {
    const TemporaryFolder folder;
    for (const bool parameters : {false, true}) {
        for (const int accumulation : {1, 3}) {
            CAPTURE(parameters, accumulation);
            const Json nvme = {{"device", "nvme"}, {"nvme_path", folder.path()}};
            Json zero = {{"stage", 3}, {"offload_optimizer", nvme}};
            if (parameters) zero["offload_param"] = nvme;
            const Json planned = plan_json(
                folder, {"--compare", "cache", "--set", "zero_optimization=" + zero.dump(), "--set",
                         "dslaunch.offload.chunk_numel=4096", "--set",
                         "gradient_accumulation_steps=" + std::to_string(accumulation), "--set",
                         "gradient_clipping=1.0"});
            std::map<int64_t, Json> least;
            for (const Json& row : planned.at("rows"))
                if (row.at("rule") == "least") least[row.at("buffers")] = row;
            REQUIRE(least.size() >= 4);
            size_t compared = 0;
            for (const Json& row : planned.at("rows")) {
                INFO(row.dump());
                const Json& bound = least.at(row.at("buffers"));
                CHECK(row.at("hits") >= 0.0);
                CHECK(row.at("hits") <= row.at("uses"));
                CHECK(row.at("uses") == bound.at("uses"));
                CHECK(row.at("read_bytes") >= bound.at("read_bytes"));
                CHECK(row.at("written_bytes") >= bound.at("written_bytes"));
                compared += row.at("rule") == "least" ? 0 : 1;
            }
            CHECK(compared == 2 * least.size());
            // With buffers for all chunks, no chunk has to be written.
            CHECK(least.rbegin()->second.at("written_bytes") == 0.0);
        }
    }
}

}  // namespace dslaunch::test
