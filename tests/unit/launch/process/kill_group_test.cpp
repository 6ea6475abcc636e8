#include "launch/process/kill_group.h"

#include "support/catch.h"

using namespace dslaunch::launch;

// Tests with groups are in tests/cluster/kill_test.cpp, which may mount them.
TEST_CASE("a launch without an id, or with one that is no file name, has no group") {
    CHECK_FALSE(enter_kill_group("", 0));
    CHECK_FALSE(enter_kill_group("a/../b", 0));
    CHECK(kill_group_members("", 5).empty());
    CHECK(kill_group_members("nobody-has-this-id", 5).empty());
    kill_groups("nobody-has-this-id", 5);
}
