#include "launcher/jobs/report.h"

#include <nlohmann/json.hpp>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launcher;

TEST_CASE("names are replaced as whole words, the same ones by the same word") {
    NameMask mask;
    for (const char* name : {"node1", "node10", "gw", "node1", "", "localhost", "7"})
        mask.add(name, "host");
    mask.add("ann", "user");
    const std::vector<std::pair<std::string, std::string>> rows = {
        {"node1 and node10 and node1", "host1 and host2 and host1"},
        {"ann@node1:22", "user1@host1:22"},
        {"node100 annotate gwx x-gw", "node100 annotate gwx x-gw"},
        {"/home/ann/x gw", "/home/user1/x host3"},
        {"localhost 7", "localhost 7"},
        {"", ""},
    };
    for (const auto& [text, masked] : rows) CHECK(mask.apply(text) == masked);
    CHECK(NameMask().apply("node1") == "node1");
}

TEST_CASE("nothing secret leaves in a report, as text or as JSON") {
    const std::string canary = "c4nary-9876543210abcdef";
    const std::vector<ReportSection> sections = {
        {"variables", {{"HF_TOKEN", canary}, {"NCCL_DEBUG", "INFO"}}, ""},
        {"log", {{"url", "http://me:" + canary + "@h"}}, "api_key=" + canary + "\nfine\x1b[2J\n"},
    };
    const std::string text = report_text(sections, {});
    const std::string json = report_json(sections, {});
    for (const std::string& report : {text, json}) {
        CHECK(report.find(canary) == std::string::npos);
        CHECK(report.find("INFO") != std::string::npos);
        CHECK(report.find("fine") != std::string::npos);
        CHECK(report.find('\x1b') == std::string::npos);
    }
    CHECK(nlohmann::json::parse(json)[1]["title"] == "log");
}
