// Training jobs that are killed, asked to end, or out of disk while they save: what was committed
// stays whole, and a resumed run has the bits of one that nothing happened to.
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <random>

#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {
namespace {

// Two ranks of gpt.pt, ZeRO-1, with dropout's seeds, shuffled data, a schedule and clipping.
struct SavingJob {
    TemporaryFolder folder;
    int64_t steps = 40;
    int64_t interval = 3;
    int64_t eval_interval = 0;
    std::vector<std::string> more;  // options
    int ranks = 2;

    [[nodiscard]] std::string output() const { return folder.path() + "/out"; }
    [[nodiscard]] std::vector<std::string> command(bool resume) const {
        std::ifstream file(fixture_file("models/gpt.json"));
        Json config = fixture_config(Json::parse(file), 1, steps);
        config["zero_optimization"] = {{"stage", 1}};
        config["gradient_clipping"] = 0.5;
        config["scheduler"] = {{"type", "WarmupDecayLR"},
                               {"params", {{"warmup_num_steps", 5}, {"total_num_steps", 1000}}}};
        config["dslaunch"]["data"]["shuffle"] = true;
        config["dslaunch"]["save"] = {{"interval", interval}, {"keep", 3}};
        if (eval_interval > 0) {
            config["dslaunch"]["data"]["eval_fraction"] = 0.5;
            config["dslaunch"]["eval_interval"] = eval_interval;
        }
        write_file(folder.path() + "/config.json", config.dump());
        std::vector<std::string> words = {kLauncher,  "--num_gpus", std::to_string(ranks),
                                          "--device", "cpu",        "--output",
                                          output(),   "--config",   folder.path() + "/config.json"};
        if (resume) words.push_back("--resume");
        words.insert(words.end(), more.begin(), more.end());
        words.push_back(fixture_file("models/gpt.pt"));
        return words;
    }
    // Of each step the last line that is whole.
    [[nodiscard]] std::map<int64_t, double> losses() const {
        std::map<int64_t, double> losses;
        std::ifstream metrics(output() + "/metrics.jsonl");
        for (std::string line; std::getline(metrics, line);) {
            const Json json = Json::parse(line, nullptr, false);
            if (!json.is_discarded() && json.contains("loss"))
                losses[json.at("step").get<int64_t>()] = json.at("loss").get<double>();
        }
        return losses;
    }
    [[nodiscard]] std::string weights() const { return folder.read("out/model.safetensors"); }
    [[nodiscard]] bool has_stepped() const { return !losses().empty(); }
};

// Step of the newest complete checkpoint, -1: none. All that count as complete must be whole.
int64_t newest_whole(const std::string& output) {
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    int64_t newest = -1;
    for (const StoredCheckpoint& stored :
         CheckpointStore(*tree, output + "/checkpoints", 0).list()) {
        INFO(stored.folder << ": " << stored.fault);
        REQUIRE(stored.complete);
        const CheckpointReader reader(*tree, stored.folder);
        for (size_t f = 0; f < reader.checkpoint().files.size(); ++f)
            REQUIRE(reader.verify_file(f) == "");
        newest = std::max(newest, stored.step);
    }
    return newest;
}

// The launcher (0) or one of its dsworkers.
void kill_one(const JobProcess& process, size_t which) {
    std::vector<ProcessName> workers;
    for (const ProcessName& each : descendants(process.pid())) {
        std::ifstream file("/proc/" + std::to_string(each.pid) + "/cmdline");
        const std::string line{std::istreambuf_iterator<char>(file), {}};
        if (line.find("dsworker") != std::string::npos) workers.push_back(each);
    }
    if (which == 0 || workers.empty()) return process.signal(SIGKILL);
    static_cast<void>(signal_process(workers[(which - 1) % workers.size()], SIGKILL));
}

struct Kills {
    int asked = 0;
    uint64_t seed = 1;
};

// Kills a job at random moments until it has come to its end KILLS.asked kills later, and compares
// it with one that nobody killed.
void check_kills(const Kills& kills, SavingJob& job, const SavingJob& untouched) {
    std::mt19937_64 random(kills.seed);
    int killed = 0, ended = 0;
    int64_t newest = -1;
    while (killed < kills.asked || ended == 0) {
        JobProcess process(job.folder, job.command(/*resume=*/true));
        const bool kills_again = killed < kills.asked;
        if (kills_again) {
            const auto wait = std::chrono::milliseconds(100 + random() % 1'500);
            const auto limit = Steady::now() + wait;
            int code = -1;
            while (Steady::now() < limit && code < 0) code = process.wait(1);
            if (code < 0) {
                kill_one(process, random() % 3);
                ++killed;
                code = process.wait(20'000);
                INFO(process.err());
                REQUIRE(code != -1);
                REQUIRE(wait_until([] { return descendants(::getpid()).empty(); }, 5'000));
                const int64_t now = newest_whole(job.output());
                INFO("newest was " << newest << " and is " << now);
                REQUIRE(now >= newest);
                newest = now;
                continue;
            }
            INFO(process.err());
            REQUIRE(code == 0);
        } else {
            const int code = process.wait(60'000);
            INFO(process.err());
            REQUIRE(code == 0);
        }
        ++ended;
        REQUIRE(job.losses() == untouched.losses());
        REQUIRE(job.weights() == untouched.weights());
        std::filesystem::remove_all(job.output());
        newest = -1;
    }
    std::printf("%d kills, %d runs came to their end, all with the bits of the run without\n",
                killed, ended);
}

void run_to_end(const SavingJob& job) {
    JobProcess process(job.folder, job.command(/*resume=*/false));
    const int code = process.wait(120'000);
    INFO(process.err());
    REQUIRE(code == 0);
}

}  // namespace

TEST_CASE("a run that is killed at random and resumed has the bits of one that is not") {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    SavingJob untouched;
    run_to_end(untouched);
    CHECK(untouched.losses().size() == 40);
    SavingJob job;
    check_kills({4, 7}, job, untouched);
}

TEST_CASE("200 random kills, each resumed", "[.long]") {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    SavingJob untouched;
    untouched.steps = 120;
    run_to_end(untouched);
    SavingJob job;
    job.steps = 120;
    check_kills({200, 11}, job, untouched);
}

TEST_CASE("1,000 kills while every step is saved leave a whole checkpoint", "[.long]") {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    SavingJob job;
    job.steps = 1'000'000;
    job.interval = 1;
    std::mt19937_64 random(3);
    int64_t newest = -1;
    for (int kill = 0; kill < 1'000; ++kill) {
        JobProcess process(job.folder, job.command(/*resume=*/true));
        const size_t before = job.losses().empty() ? 0 : job.losses().rbegin()->first;
        REQUIRE(wait_until(
            [&] {
                const auto losses = job.losses();
                return !losses.empty() && losses.rbegin()->first > static_cast<int64_t>(before);
            },
            30'000));
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
        const int64_t done = job.losses().rbegin()->first;
        kill_one(process, random() % 3);
        REQUIRE(process.wait(20'000) != -1);
        REQUIRE(wait_until([] { return descendants(::getpid()).empty(); }, 5'000));
        const int64_t now = newest_whole(job.output());
        INFO("kill " << kill << ": newest was " << newest << " and is " << now << ", steps "
                     << done);
        REQUIRE(now >= newest);
        // A save of each step that the next two have waited for: not more than these are lost.
        REQUIRE(now >= done - 3);
        newest = now;
        std::filesystem::remove(job.output() + "/metrics.jsonl");
    }
    std::printf("1000 kills, step %ld\n", static_cast<long>(newest));
}

TEST_CASE("asked to end in any phase, a run saves its last step and a resumed one goes on") {
    SavingJob untouched;
    untouched.eval_interval = 4;
    run_to_end(untouched);
    for (const int wait_ms : {0, 300, 600, 700, 800, 900}) {
        SavingJob job;
        job.eval_interval = 4;
        JobProcess process(job.folder, job.command(false));
        REQUIRE(wait_until([&] { return job.has_stepped(); }, 30'000));
        std::this_thread::sleep_for(std::chrono::milliseconds(wait_ms));
        process.signal(wait_ms % 200 == 0 ? SIGTERM : SIGUSR1);
        const int code = process.wait(30'000);
        INFO("after " << wait_ms << " ms\n" << process.err());
        CHECK((code == 76 || code == 0));
        CHECK(newest_whole(job.output()) == job.losses().rbegin()->first);
        if (code == 0) continue;
        JobProcess resumed(job.folder, job.command(true));
        CHECK(resumed.wait(60'000) == 0);
        INFO(resumed.err());
        CHECK(job.losses() == untouched.losses());
        CHECK(job.weights() == untouched.weights());
    }
}

TEST_CASE("a time limit ends a run with its last step saved") {
    SavingJob job;
    job.steps = 10'000'000;
    job.interval = 10'000'000;
    job.more = {"--time-limit", "4"};
    JobProcess process(job.folder, job.command(false));
    const auto began = Steady::now();
    CHECK(process.wait(20'000) == 0);
    INFO(process.err());
    CHECK(Steady::now() - began < std::chrono::milliseconds(5'500));
    CHECK(newest_whole(job.output()) == job.losses().rbegin()->first);
}

TEST_CASE(
    "a damaged checkpoint is refused by name, and passed over when the newest is looked for") {
    SavingJob job;
    job.steps = 9;
    run_to_end(job);
    const std::string folder = job.output() + "/checkpoints/step-9";
    const std::string path = folder + "/optimizer-00001-of-00002.safetensors";
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(20'000);
    const auto byte = static_cast<char>(file.get() ^ 0x10);
    file.seekp(20'000);
    file.put(byte);
    file.close();
    job.steps = 12;
    job.more = {"--resume=" + folder};
    JobProcess refused(job.folder, job.command(false));
    CHECK(refused.wait(30'000) == 73);
    INFO(refused.err());
    CHECK(refused.err().find("optimizer-00001-of-00002.safetensors") != std::string::npos);
    CHECK(refused.err().find("--resume=" + job.output() + "/checkpoints/step-6") !=
          std::string::npos);
    job.more.clear();
    JobProcess process(job.folder, job.command(true));
    CHECK(process.wait(30'000) == 0);
    INFO(process.err());
    CHECK(process.err().find("step-9 is passed over") != std::string::npos);
    CHECK(process.err().find("resuming from " + job.output() + "/checkpoints/step-6") !=
          std::string::npos);
    SavingJob untouched;
    untouched.steps = 12;
    run_to_end(untouched);
    CHECK(job.losses() == untouched.losses());
}

TEST_CASE("a restarted job goes on from its newest checkpoint") {
    REQUIRE(::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    SavingJob untouched;
    run_to_end(untouched);
    SavingJob job;
    job.more = {"--max-restarts", "2"};
    JobProcess process(job.folder, job.command(false));
    REQUIRE(wait_until([&] { return newest_whole(job.output()) >= 3; }, 30'000));
    kill_one(process, 1);
    CHECK(process.wait(60'000) == 0);
    INFO(process.err());
    CHECK(process.err().find("resuming from") != std::string::npos);
    CHECK(job.losses() == untouched.losses());
    CHECK(job.weights() == untouched.weights());
}

TEST_CASE("what --resume cannot find is told") {
    SavingJob job;
    job.steps = 2;
    job.more = {"--resume=" + job.folder.path() + "/nowhere"};
    JobProcess nowhere(job.folder, job.command(false));
    CHECK(nowhere.wait(30'000) == 73);
    CHECK(nowhere.err().find("nowhere") != std::string::npos);
    job.more.clear();
    JobProcess fresh(job.folder, job.command(true));
    CHECK(fresh.wait(30'000) == 0);
    CHECK(fresh.err().find("training begins at step 0") != std::string::npos);
}

}  // namespace dslaunch::test
