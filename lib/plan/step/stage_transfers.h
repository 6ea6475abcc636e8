// The part of a step plan that joins the stages of a pipeline: sends and receives, and how far
// ahead of the compute lane they may be. Data path: stage work -> [here] -> step plan
// builder. Used by one thread.
#pragma once

#include <array>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

class StageTransfers {
  public:
    // Everything is added to PLAN. All must outlive this.
    StageTransfers(const ModelInfo& model, const StepPlanOptions& options, StepPlan& plan)
        : model_(model), options_(options), plan_(plan) {}

    // Adds none outside of a pipeline.
    void add_places();

    // A message that has come has a buffer, which its reader frees, and a place, which who uses it
    // writes: two messages of a lane are on their way, or wait for the compute lane, at once.
    struct Received {
        int buffer = -1;
        int place = -1;
    };
    // These receive, for micro step M, the live values before PART and the gradients of those
    // behind it.
    [[nodiscard]] Received receive_values(const StagePart& part, int m);
    [[nodiscard]] Received receive_gradients(const StagePart& part, int m);
    // These send VALUES behind PART and GRADIENTS of those before it, which are freed once they are
    // gone. No gradients, -1: nothing behind the cut wants any, which the stage before is told.
    void send_values(const StagePart& part, int m, int values);
    void send_gradients(const StagePart& part, int m, int gradients);

    // A work of the schedule begins, and, with its last instruction, ends: nothing is received for
    // it before the last but one has ended, so that a rank never waits for another one longer than
    // a few works take.
    void begin_work() { turn_ = turns_[work_++ % 2]; }
    void end_work();

  private:
    struct Transfer {
        Op op = Op::kSend;
        bool gradients = false;
        StageSide other = {};
        int part = 0;  // of the model, the one before the cut
        int segment = 0;
        int micro_step = 0;
        int buffer = -1;
    };
    Instruction& add(const Transfer& transfer);
    [[nodiscard]] Received receive(const Transfer& transfer);
    int add_buffer(PlanBuffer buffer);

    const ModelInfo& model_;
    const StepPlanOptions& options_;
    StepPlan& plan_;
    std::array<std::array<int, 2>, kLanes> places_ = {};  // of the lanes that receive
    std::array<int, kLanes> messages_ = {};               // of each lane so far
    int turns_[2] = {-1, -1};
    int turn_ = -1;
    int work_ = 0;
};

}  // namespace dslaunch::plan
