// Training jobs that save checkpoints, and their files. Tests kill these jobs, ask them to end,
// take their disk away, or resume them.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "storage/checkpoint/checkpoint_reader.h"
#include "storage/checkpoint/checkpoint_store.h"
#include "support/catch.h"
#include "support/train_job.h"

namespace dslaunch::test {

using namespace launch;
using namespace storage;

// A training of gpt.pt on two ranks with ZeRO-1, dropout with seeds, shuffled data, a schedule and
// clipping.
struct SavingJob {
    TemporaryFolder folder;
    int64_t steps = 40;
    int64_t interval = 3;
    int64_t eval_interval = 0;
    std::vector<std::string> more;  // more options
    int ranks = 2;
    std::string model = "gpt";
    std::string place = "/out";         // --output, inside the folder
    std::function<void(Json&)> change;  // changes the config

    [[nodiscard]] std::string output() const { return folder.path() + place; }
    [[nodiscard]] std::vector<std::string> command(bool resume) const {
        Json config = fixture_config(fixture_facts(model), 1, steps);
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
        if (change) change(config);
        std::vector<std::string> options = {"--num_gpus", std::to_string(ranks)};
        if (resume) options.push_back("--resume");
        options.insert(options.end(), more.begin(), more.end());
        return training_command(folder, options, fixture_archive(model), config, place);
    }
    // Returns the loss of each step.
    [[nodiscard]] std::map<int64_t, double> losses() const {
        return values_by_step(output(), "loss");
    }
    [[nodiscard]] std::string weights() const { return folder.read(place + "/model.safetensors"); }
    [[nodiscard]] bool has_stepped() const { return !losses().empty(); }
};

// Returns the step of the newest complete checkpoint, or -1 if there is none. All complete
// checkpoints must be whole.
inline int64_t newest_whole(const std::string& output) {
    const std::unique_ptr<FileTree> tree = make_disk_tree();
    int64_t newest = -1;
    for (const StoredCheckpoint& stored :
         CheckpointStore(*tree, output + "/checkpoints", 0).list()) {
        INFO(stored.folder << ": " << stored.fault);
        REQUIRE(stored.is_complete);
        const CheckpointReader reader(*tree, stored.folder);
        for (size_t f = 0; f < reader.checkpoint().files.size(); ++f)
            REQUIRE(reader.verify_file(f) == "");
        newest = std::max(newest, stored.step);
    }
    return newest;
}

inline std::vector<ProcessName> workers_of(const JobProcess& process) {
    std::vector<ProcessName> workers;
    for (const ProcessName& each : descendants(process.pid())) {
        if (mentions(process_file(each.pid, "cmdline"), "dsworker")) workers.push_back(each);
    }
    return workers;
}

// Kills the launcher (WHICH is 0) or one of its dsworkers.
inline void kill_one(const JobProcess& process, size_t which) {
    const std::vector<ProcessName> workers = workers_of(process);
    if (which == 0 || workers.empty()) return process.signal(SIGKILL);
    static_cast<void>(signal_process(workers[(which - 1) % workers.size()], SIGKILL));
}

// Kills one of the RANKS dsworkers of PROCESS as soon as all are there, in their set-up.
inline void kill_in_set_up(const JobProcess& process, size_t ranks) {
    std::vector<ProcessName> workers;
    REQUIRE(wait_until([&] {
        workers = workers_of(process);
        return workers.size() == ranks;
    }));
    REQUIRE(signal_process(workers.back(), SIGKILL));
}

inline void run_to_end(const SavingJob& job) {
    JobProcess process(job.folder, job.command(/*resume=*/false));
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
}

}  // namespace dslaunch::test
