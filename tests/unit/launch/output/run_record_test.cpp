// Reading run.json, also one that is half written or has values of other types.
#include "launch/output/run_record.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "support/catch.h"
#include "support/temporary_folder.h"
#include "support/text_tools.h"

using namespace dslaunch;
using namespace dslaunch::launch;

TEST_CASE("a run.json gives what it says, and nothing where it says something else") {
    const test::TemporaryFolder folder;
    const auto read = [&](const std::string& text) {
        test::write_file(folder.path() + "/run.json", text);
        return find_run_record(folder.path());
    };
    CHECK_FALSE(find_run_record(folder.path()));
    const auto whole = read(
        R"({"job_id": "a1", "target": "m.pt", "run": {"prompts": "ids", "config": {"values": [
            {"path": "seed", "value": 3}, {"path": "dslaunch.steps", "value": 40}]}}})");
    REQUIRE(whole);
    CHECK(whole->job_id == "a1");
    CHECK(whole->target == "m.pt");
    CHECK(whole->prompts == "ids");
    CHECK(whole->steps == 40);
    CHECK(whole->json.at("run").at("config").at("values").size() == 2);
    for (const char* other : {"{}", R"({"job_id": 5, "target": null, "run": [1]})",
                              R"({"run": {"prompts": {}, "config": {"values": [{"path": 1}]}}})",
                              R"({"run": {"config": {"values": [
                                  {"path": "dslaunch.steps", "value": "many"}]}}})"}) {
        CAPTURE(other);
        const auto record = read(other);
        REQUIRE(record);
        CHECK(record->job_id + record->target + record->prompts == "");
        CHECK_FALSE(record->steps);
    }
    for (const char* broken : {"", "[]", "7", R"({"job_id": "a1")", "{} {}"}) {
        CAPTURE(broken);
        CHECK_FALSE(read(broken));
        CHECK_THROWS_WITH(read_run_record(folder.path()),
                          Catch::Contains("/run.json: is not a JSON object"));
    }
}
