#include "launch/plan/worker_environment.h"

#include <cstdlib>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "launch/machine/machine_topology.h"
#include "launch/plan/environment_file.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::launch;

namespace {

// Sets the variables for one scope, and removes all variables of a rank before and after it.
class ScopedEnvironment {
  public:
    explicit ScopedEnvironment(const EnvironmentList& list) {
        clear();
        for (const auto& [name, value] : list) setenv(name.c_str(), value.c_str(), 1);
    }
    ~ScopedEnvironment() { clear(); }

  private:
    static void clear() {
        WorkerEnvironment all;
        all.arena_fd = all.rendezvous_fd = all.control_fd = 9;
        for (const auto& [name, value] : all.variables()) unsetenv(name.c_str());
    }
};

WorkerEnvironment fourth_of_six() {
    WorkerEnvironment e;
    e.rank = 3;
    e.world_size = 6;
    e.local_rank = 0;
    e.local_world_size = 3;
    e.node_rank = 2;
    e.node_sizes = {2, 1, 3};
    e.master_address = "te1";
    e.master_port = 29'500;
    e.devices = "2,3,4";
    e.job_id = "job7";
    e.launch_id = "0123456789abcdef0123456789abcdef";
    e.attempt = 2;
    e.control_fd = 5;
    return e;
}

}  // namespace

TEST_CASE("the variables of a rank are those of the contract") {
    const EnvironmentList list = fourth_of_six().variables();
    const std::map<std::string, std::string> got(list.begin(), list.end());
    CHECK(got.size() == list.size());
    const std::map<std::string, std::string> expected = {
        {"RANK", "3"},
        {"LOCAL_RANK", "0"},
        {"WORLD_SIZE", "6"},
        {"LOCAL_WORLD_SIZE", "3"},
        {"GROUP_RANK", "2"},
        {"NODE_RANK", "2"},
        {"MASTER_ADDR", "te1"},
        {"MASTER_PORT", "29500"},
        {"CROSS_RANK", "2"},
        {"CROSS_SIZE", "3"},
        {"LOCAL_SIZE", "3"},
        {"CUDA_VISIBLE_DEVICES", "2,3,4"},
        {"TORCHELASTIC_RESTART_COUNT", "0"},
        {"TORCHELASTIC_MAX_RESTARTS", "0"},
        {"TORCHELASTIC_RUN_ID", "job7"},
        {"TORCHELASTIC_USE_AGENT_STORE", "False"},
        {"DSL_LAUNCH_ID", fourth_of_six().launch_id},
        {"DSL_ATTEMPT", "2"},
        {"DSL_CONTROL_FD", "5"}};
    for (const auto& [name, value] : expected) {
        INFO(name);
        REQUIRE(got.contains(name));
        CHECK(got.at(name) == value);
    }
    CHECK_FALSE(got.contains("DSL_ARENA_FD"));
}

TEST_CASE("what the launcher writes is what the worker reads") {
    const ScopedEnvironment scope(fourth_of_six().variables());
    CHECK(WorkerEnvironment::from_process().variables() == fourth_of_six().variables());
}

TEST_CASE("without RANK a process is a world of one") {
    const ScopedEnvironment scope({});
    const WorkerEnvironment e = WorkerEnvironment::from_process();
    CHECK(e.world_size == 1);
    CHECK(e.node_sizes == std::vector<int>{1});
    CHECK(e.arena_fd == -1);
}

TEST_CASE("a missing, malformed or contradicting variable is named") {
    const std::pair<std::pair<const char*, const char*>, const char*> rows[] = {
        {{"WORLD_SIZE", nullptr}, "WORLD_SIZE"},
        {{"WORLD_SIZE", "0"}, "WORLD_SIZE"},
        {{"RANK", "x"}, "RANK"},
        {{"RANK", "6"}, "contradicts WORLD_SIZE"},
        {{"RANK", "4"}, "contradicts LOCAL_RANK"},
        {{"LOCAL_RANK", "3"}, "LOCAL_RANK"},
        {{"NODE_RANK", "1"}, "contradicts NODE_RANK"},
        {{"DSL_NODE_SIZES", "2,1"}, "DSL_NODE_SIZES"},
        {{"DSL_NODE_SIZES", "2,,3"}, "DSL_NODE_SIZES"},
        {{"DSL_NODE_SIZES", "3,2,1"}, "LOCAL_WORLD_SIZE"},
        {{"MASTER_ADDR", ""}, "MASTER_ADDR"},
        {{"MASTER_PORT", "0"}, "MASTER_PORT"},
        {{"DSL_CONTROL_FD", "-7"}, "DSL_CONTROL_FD"}};
    for (const auto& [change, message] : rows) {
        const ScopedEnvironment scope(fourth_of_six().variables());
        if (change.second == nullptr) {
            unsetenv(change.first);
        } else {
            setenv(change.first, change.second, 1);
        }
        INFO(change.first);
        CHECK_THROWS_WITH(WorkerEnvironment::from_process(), Catch::Contains(message));
    }
}

TEST_CASE("torchrun's equal nodes are understood without our own variable") {
    const ScopedEnvironment scope({{"RANK", "3"},
                                   {"WORLD_SIZE", "4"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "2"},
                                   {"GROUP_RANK", "1"},
                                   {"MASTER_ADDR", "h"},
                                   {"MASTER_PORT", "1"}});
    CHECK(WorkerEnvironment::from_process().node_sizes == std::vector<int>{2, 2});
}

TEST_CASE("the first number of OMP_NUM_THREADS is the number of an operator's threads") {
    CHECK(first_threads("4") == 4);
    CHECK(first_threads(" 3 ,2") == 3);
    for (const char* bad : {"", "x", "0", "-2", ",4", "4x,2"}) {
        INFO(bad);
        CHECK_FALSE(first_threads(bad).has_value());
    }
}

TEST_CASE("without OMP_NUM_THREADS the ranks of a machine share its processors") {
    const char* const before = std::getenv(kThreadsVariable);
    const std::string kept = before == nullptr ? "" : before;
    ::setenv(kThreadsVariable, "5,2", 1);
    CHECK(rank_threads(1) == 5);
    CHECK(rank_threads(100'000) == 5);
    for (const char* none : {"", "many"}) {
        ::setenv(kThreadsVariable, none, 1);
        CHECK(rank_threads(1) == processors_granted());
        CHECK(rank_threads(100'000) == 1);
    }
    ::unsetenv(kThreadsVariable);
    CHECK(rank_threads(1) == processors_granted());
    if (before != nullptr) ::setenv(kThreadsVariable, kept.c_str(), 1);
}

TEST_CASE("waiting threads spin for a short time, unless the user has decided it") {
    EnvironmentList unset;
    limit_spinning(unset);
    REQUIRE(unset.size() == 1);
    CHECK(unset.front().first == "GOMP_SPINCOUNT");
    CHECK(parse_int(unset.front().second).value_or(0) >= 500);
    for (const EnvironmentList& given : {EnvironmentList{{"GOMP_SPINCOUNT", "7"}},
                                         EnvironmentList{{"OMP_WAIT_POLICY", "active"}}}) {
        EnvironmentList environment = given;
        limit_spinning(environment);
        CHECK(environment == given);
    }
}

TEST_CASE("an environment file is parsed, not handed to a shell") {
    const EnvironmentFile file = parse_environment_file(
        "\r\n# note\nA=1\nexport B = x=y \nC=\"a \\\"q\\\" \\$HOME\\n\"\nD='it \\n $X'\nE=\nA=2\n"
        "F={\"k\": \"v\"}\nG=pa$$w0rd$5 $",
        "f");
    const EnvironmentList expected = {
        {"A", "1"}, {"B", "x=y"}, {"C", "a \"q\" $HOME\n"}, {"D", "it \\n $X"},
        {"E", ""},  {"A", "2"},   {"F", "{\"k\": \"v\"}"},  {"G", "pa$$w0rd$5 $"}};
    CHECK(file.variables == expected);
    CHECK(file.expanded.empty());
    for (const char* bad :
         {"A", "1A=2", "=3", "A-B=1", "A=\"open", "A='a'b", "RANK=1", "DSL_JOB_ID=2", "A=${",
          "A=${1}", "A=${HOME", "A=${HOME%x}", "A=$(id)", "A=\"`id`\"", "A=${B:-$(id)}",
          "A=${B:-${B:-${B:-${B:-${B:-${B:-${B:-${B:-${B:-${B:-x}}}}}}}}}}"}) {
        INFO(bad);
        CHECK_THROWS_WITH(parse_environment_file(std::string("OK=1\n") + bad, "f"),
                          Catch::Contains("f:2: "));
    }
}

TEST_CASE("variables that an environment file names have the values of the host") {
    const std::map<std::string, std::string> host = {
        {"HOME", "/root"}, {"EMPTY", ""}, {"DOLLAR", "$HOME"}, {"PATH", "/bin"}};
    const auto value_of = [&](const std::string& name) -> const std::string* {
        const auto found = host.find(name);
        return found == host.end() ? nullptr : &found->second;
    };
    struct Row {
        const char* value;
        const char* expected;
    };
    // The right side is bash's result for the value in double quotes.
    for (const Row& row : std::initializer_list<Row>{
             {"$HOME/lib:$LD_LIBRARY_PATH", "/root/lib:"},
             {"${HOME}x$HOME$HOME", "/rootx/root/root"},
             {"\"$HOME/a b\"", "/root/a b"},
             {"\\$HOME $HOME", "$HOME /root"},
             {"\"\\\\$HOME \\$HOME\"", "\\/root $HOME"},
             {"$DOLLAR", "$HOME"},
             {"$HOME_2$HOME-2", "/root-2"},
             {"${NONE:-/x}:${EMPTY:-y}:${EMPTY-z}:${HOME:-w}", "/x:y::/root"},
             {"${NONE:+/x}${EMPTY:+y}${EMPTY+z}${HOME:+w}", "zw"},
             {"${NONE:-${HOME}/x$PATH}", "/root/x/bin"},
             {"$HOME}$", "/root}$"},
             {"a=$HOME=b", "a=/root=b"},
             {"\"$EMPTY\"", ""}}) {
        CAPTURE(row.value);
        const EnvironmentFile file =
            parse_environment_file(std::string("A=1\nB=") + row.value, "f");
        REQUIRE(file.expanded == std::vector<int64_t>{1});
        CHECK(expand_variables(file.variables[1].second, value_of) == row.expected);
    }
}
