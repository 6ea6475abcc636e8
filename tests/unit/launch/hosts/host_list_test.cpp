#include "launch/hosts/host_list.h"

#include "launch/hosts/slurm_allocation.h"
#include "support/catch.h"

using namespace dslaunch::launch;

TEST_CASE("names that count up share a bracket, others stand alone") {
    struct Row {
        std::vector<std::string> names;
        std::string folded;
    };
    const Row rows[] = {{{}, ""},
                        {{"te1"}, "te1"},
                        {{"te1", "te2", "te3"}, "te[1-3]"},
                        {{"te1", "te3"}, "te1,te3"},
                        {{"te9", "te10", "te11"}, "te[9-11]"},
                        {{"te09", "te10"}, "te[09-10]"},
                        {{"te9", "te010"}, "te9,te010"},
                        {{"te1", "gw", "te2"}, "te1,gw,te2"},
                        {{"r1n1.x", "r1n2.x", "r2n3.x"}, "r1n[1-2].x,r2n3.x"},
                        {{"a", "b"}, "a,b"},
                        {{"n99999999999999999999", "n1"}, "n99999999999999999999,n1"}};
    for (const Row& row : rows) CHECK(fold_names(row.names) == row.folded);
}

TEST_CASE("names that were folded are read back as they were") {
    const std::vector<std::string> lists[] = {
        {"te0", "te1", "te9", "te10", "te11"},
        {"te08", "te09", "te10", "te99", "te100"},
        {"n1", "n2", "gw", "n3", "n03", "n04"},
        {"r1n98.x", "r1n99.x", "r1n100.x", "r2n1.x"},
    };
    for (const auto& names : lists) CHECK(expand_nodelist(fold_names(names)) == names);
    std::vector<std::string> all;
    for (int i = 0; i <= 1'000; ++i) all.push_back("te" + std::to_string(i));
    CHECK(fold_names(all) == "te[0-1000]");
    CHECK(expand_nodelist("te[0-1000]") == all);
}

TEST_CASE("a range tells what is wrong with it, and where") {
    struct Row {
        const char* text;
        RangeFault fault;
        size_t end;
    };
    for (const Row& row :
         {Row{"1-4]", RangeFault::kNone, 3}, Row{"007", RangeFault::kNone, 3},
          Row{"x", RangeFault::kNoNumber, 0}, Row{"1-", RangeFault::kNoNumber, 2},
          Row{"1234567890", RangeFault::kNoNumber, 10}, Row{"4-1", RangeFault::kBackwards, 3},
          Row{"0-4095", RangeFault::kNone, 6}, Row{"0-4096", RangeFault::kTooLong, 6}}) {
        INFO(row.text);
        const ReadRange read = read_range(row.text, 0);
        CHECK(read.fault == row.fault);
        CHECK(read.end == row.end);
    }
    CHECK(read_range("007-012", 0).range.names("n", "s").back() == "n012s");
}
