// P15, P16: each rank gets exactly the environment that was asked for, byte for byte. A secret in
// it is visible nowhere. Negative controls, done by hand: if agent_worker.cpp cuts a value at its
// first newline, the first test counts 368 mismatches of 2,000; if is_secret() knows no name, P16
// finds the canary in run.json.
#include <atomic>
#include <filesystem>
#include <set>

#include "cluster/promise.h"
#include "launch/plan/worker_environment.h"
#include "support/random_environment.h"
#include "support/rig_hosts.h"

namespace dslaunch::test {

using namespace launch;
namespace {

const std::string kEnvironmentCanary = "canary-7f3a91c2";

// Runs a job with a rank on each host. Returns how many of VARIABLES arrived changed or not at all.
int send_variables(const TemporaryFolder& folder, const Words& launch, const Variables& variables,
                   int ranks) {
    Words words = launch;
    for (const auto& [name, value] : variables) words.insert(words.end(), {"--env", name});
    words.insert(words.end(), {kStub, "environment", folder.path() + "/seen"});
    const EnvironmentScope scope(variables);
    JobProcess job(folder, words);
    const int code = job.wait();
    INFO(job.err());
    REQUIRE(code == 0);
    int wrong = 0;
    for (int rank = 0; rank < ranks; ++rank)
        wrong +=
            mismatches(variables, read_variables(folder.path() + "/seen." + std::to_string(rank)));
    return wrong;
}

// Sends VARIABLES in an --env-file, where values are in quotes. Returns the same number.
int send_by_file(const TemporaryFolder& folder, const Words& launch, const Variables& variables,
                 int ranks) {
    std::ofstream file(folder.path() + "/env", std::ios::binary);
    file << "# a comment\n\n";
    for (const auto& [name, value] : variables)
        file << "export " << name << "=" << quoted_for_file(value) << "\n";
    file.close();
    JobProcess job(folder, launch + Words{"--env-file", folder.path() + "/env", kStub,
                                          "environment", folder.path() + "/seen"});
    const int code = job.wait();
    INFO(job.err());
    REQUIRE(code == 0);
    int wrong = 0;
    for (int rank = 0; rank < ranks; ++rank)
        wrong +=
            mismatches(variables, read_variables(folder.path() + "/seen." + std::to_string(rank)));
    return wrong;
}

Words over_rig(const RigHosts& rig, const TemporaryFolder& folder, const std::string& launcher) {
    std::ofstream(folder.path() + "/hostfile") << "n1 slots=1\nn2 slots=1\n";
    return rig.on(0, {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher", launcher,
                      "--ssh-config", rig.config("good"), "--quiet"});
}

void send_here(int variables, int rounds) {
    std::mt19937 engine(15);
    int wrong = 0;
    for (int round = 0; round < rounds; ++round) {
        const TemporaryFolder folder;
        const Variables sent = random_variables(variables, engine);
        const Words launch = on_pretended_hosts(folder, "h[1-2] slots=1\n");
        wrong += send_variables(folder, launch, sent, 2);
        wrong += send_by_file(folder, launch, sent, 2);
    }
    std::printf(
        "P15 local: %d values of any bytes by --env and by --env-file to 2 ranks: %d "
        "mismatches\n",
        variables * rounds, wrong);
    CHECK(wrong == 0);
}

void send_by_ssh(int variables, int rounds) {
    const RigHosts rig(2, "P15: an environment over ssh");
    if (!rig.usable()) return;
    for (const std::string launcher : {"ssh", "openssh"}) {
        std::mt19937 engine(16);
        int wrong = 0;
        for (int round = 0; round < rounds; ++round) {
            const TemporaryFolder folder;
            const Variables sent = random_variables(variables, engine);
            const Words launch = over_rig(rig, folder, launcher);
            wrong += send_variables(folder, launch, sent, 2);
            wrong += send_by_file(folder, launch, sent, 2);
        }
        std::printf(
            "P15 %s: %d values of any bytes by --env and by --env-file to 2 hosts: %d "
            "mismatches\n",
            launcher.c_str(), variables * rounds, wrong);
        CHECK(wrong == 0);
    }
}

// Returns true if NAME has a prefix that the README promises; the prefixes are listed here again.
bool is_promised_prefix(const std::string& name) {
    for (const char* prefix :
         {"NCCL_", "GLOO_", "TORCH_", "OMP_", "GOMP_", "MKL_", "KMP_", "PYTHON", "UCX_", "HF_"})
        if (name.rfind(prefix, 0) == 0) return true;
    return false;
}

// Reads every command line of the machine every 10 ms while this object exists.
class ArgvWatch {
  public:
    ArgvWatch() : thread_([this] { watch(); }) {}
    ArgvWatch(const ArgvWatch&) = delete;
    ArgvWatch& operator=(const ArgvWatch&) = delete;
    ~ArgvWatch() {
        ended_ = true;
        thread_.join();
    }
    [[nodiscard]] int hits() const { return hits_; }
    [[nodiscard]] int looks() const { return looks_; }

  private:
    void watch() {
        while (!ended_) {
            std::error_code error;
            for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
                const std::string line =
                    text_or_empty(entry.path() / "cmdline", kProcessFileBytesMax);
                hits_ += line.find(kEnvironmentCanary) != std::string::npos ? 1 : 0;
            }
            ++looks_;
            std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
    }
    std::atomic<bool> ended_ = false;
    std::atomic<int> hits_ = 0;
    std::atomic<int> looks_ = 0;
    std::thread thread_;
};

int files_with_canary(const std::string& folder) {
    int count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (!entry.is_regular_file()) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        const bool found = text.find(kEnvironmentCanary) != std::string::npos;
        if (found) std::printf("the canary stands in %s\n", entry.path().c_str());
        count += found ? 1 : 0;
    }
    return count;
}

// Runs a job whose environment has the secret under names that people usually choose. Looks at its
// four ranks; then the job fails.
void hide_canary(const TemporaryFolder& folder, const Words& launch, const std::string& how) {
    const Variables secrets = {
        {"HF_TOKEN", kEnvironmentCanary},
        {"WANDB_API_KEY", kEnvironmentCanary},
        {"AWS_SECRET_ACCESS_KEY", kEnvironmentCanary},
        {"MLFLOW_TRACKING_PASSWORD", kEnvironmentCanary},
        {"OPENAI_KEY", kEnvironmentCanary},
        {"PGPASSWORD", kEnvironmentCanary},
        {"MYSQL_PWD", kEnvironmentCanary},
        {"SSH_PASSPHRASE", kEnvironmentCanary},
        {"GOOGLE_CREDENTIALS", kEnvironmentCanary},
        {"PYTHON_AUTH", "Bearer " + kEnvironmentCanary},
        {"DATABASE_URL", "postgres://me:" + kEnvironmentCanary + "@db:5432/x"}};
    const EnvironmentScope scope(secrets);
    Words words = launch;
    for (const auto& [name, value] : secrets) words.insert(words.end(), {"--env", name});
    const std::string script = "echo $$ >>" + folder.path() + "/up; while [ ! -e " + folder.path() +
                               "/go ]; do sleep 0.01; done; exec \"$@\"";
    words.insert(words.end(),
                 {"--log-level", "debug", "--output", folder.path() + "/out",
                  "--enable_each_rank_log", folder.path() + "/each", "sh", "-c", script, "sh",
                  kStub, "die", "segv", "1", "0", folder.path() + "/pids"});
    const ArgvWatch watch;
    JobProcess job(folder, words);
    REQUIRE(wait_until([&] { return lines_in(folder.path() + "/up") == 4; }));
    const int before = watch.looks();
    // All of these looks except the first begin after all four ranks have started.
    REQUIRE(wait_until([&] { return watch.looks() >= before + 4; }));
    std::ofstream(folder.path() + "/go") << "x";
    const int code = job.wait();
    INFO(job.err());
    CHECK(code == 128 + SIGSEGV);
    const int files = files_with_canary(folder.path());
    std::printf(
        "P16 %s: %d looks at every command line: %d hits; files of the job with the "
        "secret: %d\n",
        how.c_str(), watch.looks(), watch.hits(), files);
    CHECK(watch.hits() == 0);
    CHECK(files == 0);
    CHECK(mentions(folder.read("out/run.json"), "\"HF_TOKEN\": \"(hidden)\""));
}

}  // namespace

TEST_CASE("P15: every value reaches the ranks byte for byte on this machine") {
    send_here(500, 1);
}
TEST_CASE("P15: every value reaches the ranks byte for byte over ssh") {
    send_by_ssh(500, 1);
}
TEST_CASE("P15 with 100000 values each way", "[.long]") {
    send_here(1'000, 100);
    send_by_ssh(1'000, 100);
}

TEST_CASE("P15: a remote rank has no variable that nobody asked for") {
    const RigHosts rig(2, "P15: names that leak over ssh");
    if (!rig.usable()) return;
    std::set<std::string> allowed = {"PATH", "HOME",   "USER",  "LOGNAME",    "SHELL",
                                     "LANG", "TMPDIR", "ASKED", "NCCL_DEBUG", "PYTHONPATH"};
    WorkerEnvironment any;
    any.node_sizes = {1};
    for (const auto& [name, value] : any.variables()) allowed.insert(name);
    allowed.insert("DSL_ARENA_FD");  // the memory that the ranks of a host share
    for (const std::string launcher : {"ssh", "openssh"}) {
        const TemporaryFolder folder;
        const EnvironmentScope scope({{"NOT_ASKED", "1"},
                                      {"ASKED", "2"},
                                      {"NCCL_DEBUG", "INFO"},
                                      {"PYTHONPATH", "/x"},
                                      {"SSH_AUTH_SOCK", "/proc/nowhere"},
                                      {"LC_ALL", "C"},
                                      {"DSL_FOO", "1"}});
        JobProcess job(folder,
                       over_rig(rig, folder, launcher) +
                           Words{"--env", "ASKED", kStub, "environment", folder.path() + "/seen"});
        const int code = job.wait();
        INFO(job.err());
        REQUIRE(code == 0);
        int leaked = 0;
        const Variables seen = read_variables(folder.path() + "/seen.1");
        for (const auto& [name, value] : seen) {
            INFO(name);
            const bool fine = allowed.count(name) == 1 || is_promised_prefix(name);
            CHECK(fine);
            leaked += fine ? 0 : 1;
        }
        CHECK(seen.at("ASKED") == "2");
        CHECK(seen.at("NCCL_DEBUG") == "INFO");
        std::printf("P15 %s: %zu variables arrive, %d that nobody asked for\n", launcher.c_str(),
                    seen.size(), leaked);
    }
}

TEST_CASE("P16: a secret is in no command line, no log and no file of the job") {
    {
        const TemporaryFolder folder;
        std::ofstream(folder.path() + "/hostfile") << "h[1-2] slots=2\n";
        hide_canary(folder,
                    {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher", "local"},
                    "local");
    }
    const RigHosts rig(2, "P16: a secret over ssh");
    if (!rig.usable()) return;
    for (const std::string launcher : {"ssh", "openssh"}) {
        const TemporaryFolder folder;
        std::ofstream(folder.path() + "/hostfile") << "n[1-2] slots=2\n";
        hide_canary(folder,
                    rig.on(0, {kDslaunch, "--hostfile", folder.path() + "/hostfile", "--launcher",
                               launcher, "--ssh-config", rig.config("good")}),
                    launcher);
    }
}

}  // namespace dslaunch::test
