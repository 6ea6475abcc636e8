// The contents of run.json: how a job was started, on which machines, and how it ended. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/agent/machine_facts.h"
#include "launch/output/environment_report.h"
#include "launch/plan/job_spec.h"
#include "launch/protocol/messages.h"

namespace dslaunch::launch {

// Collects the facts about one attempt at a job, and writes them as JSON.
class RunFile {
  public:
    // SPEC must outlive this object.
    explicit RunFile(const JobSpec& spec);

    // Sets the number of restarts before this attempt.
    void set_restarts(int restarts) { restarts_ = restarts; }
    // Sets when the first attempt began, in seconds of Unix time; the default is the time of
    // construction.
    void set_started_at(int64_t seconds) { started_at_s_ = seconds; }
    // Adds the next node of SPEC. FACTS: null if the agent is on this machine.
    void add_node(const AgentHello& hello, const std::string& name, const MachineFacts* facts);
    // Adds a rank that has started. Throws std::out_of_range for a rank that the job does not have.
    void add_rank(const WorkerStarted& started) {
        started_.at(static_cast<size_t>(started.rank)) = started;
    }
    // Sets the JSON object that rank 0 reports about its run.
    void set_run_info(std::string_view json) { run_info_ = json; }
    // Sets the JSON object that rank 0 reports about its run's result.
    void set_run_result(std::string_view json) { run_result_ = json; }

    // Returns the environments of the ranks that have started, by rank.
    [[nodiscard]] std::vector<RankVariables> environments() const;
    // Returns the JSON text, with a final newline. EXIT_CODE -1: the job is still running.
    [[nodiscard]] std::string text(int exit_code) const;

  private:
    struct Node {
        std::string name;
        AgentHello hello;
        std::optional<MachineFacts> machine;
    };

    const JobSpec& spec_;
    int64_t started_at_s_;  // Unix time
    int restarts_ = 0;
    std::vector<Node> nodes_;
    std::vector<WorkerStarted> started_;  // by rank; pid 0: not started
    std::string run_info_;                // empty: not reported yet
    std::string run_result_;              // empty: not reported yet
};

}  // namespace dslaunch::launch
