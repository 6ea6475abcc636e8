// DeepSpeed's rules for splitting layers, tensor_parallel.partition_config.layer_specs.
#include <fmt/format.h>

#include "unit/config/resolved.h"

using namespace dslaunch;
using namespace dslaunch::config;
using namespace dslaunch::test;

TEST_CASE("DeepSpeed's layer_specs become rules by regular expressions") {
    const auto specs = [](const std::string& list) {
        return fmt::format(
            "{{tensor_parallel: {{autotp_size: 2, partition_config: "
            "{{use_default_specs: false, layer_specs: {}}}}}}}",
            list);
    };
    const Resolved result =
        resolved(specs(R"([{patterns: [".*\\.o_proj$", ".*down"], partition_type: ROW},
                  {patterns: [".*\\.[qkv]_proj"], shape: [3, -1], partition_dim: 0},
                  {patterns: [".*gate"], partition_type: skip}])"),
                 2);
    using Rules = std::vector<std::pair<std::string, std::string>>;
    CHECK(result.config.tensor.expressions == Rules{{R"(.*\.o_proj$)", "row"},
                                                    {".*down", "row"},
                                                    {R"(.*\.[qkv]_proj)", "column"},
                                                    {".*gate", "replicated"}});
    const auto problem = [&](const std::string& list) {
        const Resolved bad =
            resolve(parse_config(specs(list), "c"), ResolveOptions{.world_size = 2});
        REQUIRE(bad.problems.size() == 1);
        return bad.problems.front().text();
    };
    CHECK(problem("[{partition_type: row}]").find("needs `patterns`") != std::string::npos);
    CHECK(problem(R"([{patterns: ["("]}])").find("is not a regular expression,") !=
          std::string::npos);
    CHECK(problem(R"([{patterns: ["(?<=x)y"]}])").find("is not a regular expression,") !=
          std::string::npos);
}
