#include "launch/hosts/hostfile.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "support/catch.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

std::string chosen(const HostFilter& filter) {
    std::string text;
    for (const HostSlots& entry :
         apply_filter(parse_hostfile("n1 slots=2\nn2 gpus=7,3\nn3 slots=4", "h"), filter)) {
        text += fmt::format("{}:{} ", entry.host.name, fmt::join(entry.slots, ","));
    }
    return text;
}

std::string refusal(const HostFilter& filter) {
    return test::error_of(ExitCode::kUsage, [&] { (void)chosen(filter); });
}

}  // namespace

TEST_CASE("filters choose hosts and slots in the hostfile's order") {
    CHECK(chosen({}) == "n1:0,1 n2:3,7 n3:0,1,2,3 ");
    CHECK(chosen({.include = "n3:2,0@n1", .exclude = "", .num_nodes = {}, .num_gpus = {}}) ==
          "n1:0,1 n3:0,2 ");
    CHECK(chosen({.include = "n2:7", .exclude = "", .num_nodes = {}, .num_gpus = {}}) == "n2:7 ");
    CHECK(chosen(
              {.include = "n3:2,2@n1:0@n3:0@n1", .exclude = "", .num_nodes = {}, .num_gpus = {}}) ==
          "n1:0,1 n3:0,2 ");
    CHECK(chosen({.include = "", .exclude = "n2@n3:0,3", .num_nodes = {}, .num_gpus = {}}) ==
          "n1:0,1 n3:1,2 ");
    CHECK(chosen({.include = "", .exclude = "n2:3", .num_nodes = {}, .num_gpus = {}}) ==
          "n1:0,1 n2:7 n3:0,1,2,3 ");
    CHECK(chosen({.include = "", .exclude = "", .num_nodes = 2, .num_gpus = {}}) ==
          "n1:0,1 n2:3,7 ");
    CHECK(chosen({.include = "", .exclude = "", .num_nodes = {}, .num_gpus = 1}) ==
          "n1:0 n2:3 n3:0 ");
    CHECK(chosen({.include = "", .exclude = "", .num_nodes = 1, .num_gpus = 2}) == "n1:0,1 ");
}

TEST_CASE("filters that ask for what is not there are refused with what is") {
    const std::tuple<HostFilter, const char*> rows[] = {
        {{"n1", "n2", {}, {}}, "cannot be combined"},
        {{"n1", "", 1, {}}, "--num_nodes"},
        {{"", "n1", {}, 1}, "--num_gpus"},
        {{"n4", "", {}, {}}, "`n4` is not in the hostfile, did you mean `n1`"},
        {{"n2:0", "", {}, {}}, "has no slot 0; its slots are 3,7"},
        {{"n1:2", "", {}, {}}, "has no slot 2"},
        {{"n1:", "", {}, {}}, "not a slot number"},
        {{"n1:-1", "", {}, {}}, "not a slot number"},
        {{"n1@", "", {}, {}}, "not a host name"},
        {{"$(id)", "", {}, {}}, "not a host name"},
        {{"", "n1@n2@n3", {}, {}}, "leaves no slot"},
        {{"", "", 4, {}}, "there are only 3 hosts"},
        {{"", "", {}, 3}, "`n1` has 2, `n2` has 2"},
        {{"", "", 0, {}}, "at least 1"},
        {{"", "", {}, 0}, "at least 1"},
    };
    for (const auto& [filter, message] : rows)
        CHECK_THAT(refusal(filter), Catch::Contains(message));
}
