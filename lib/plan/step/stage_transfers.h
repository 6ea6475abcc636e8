// The part of a step plan that joins the stages of a pipeline: sends and receives, and the limit of
// their lead over the compute lane. Data path: stage work -> [here] -> step plan
// builder. Used by one thread.
#pragma once

#include <array>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

class StageTransfers {
  public:
    // Everything is added to PLAN. MODEL, OPTIONS and PLAN must outlive this.
    StageTransfers(const ModelInfo& model, const StepPlanOptions& options, StepPlan& plan)
        : model_(model), options_(options), plan_(plan) {}

    // Adds the places of messages; none without a pipeline.
    void add_places();

    // A received message has a buffer, which its reader frees, and a place, which its user writes:
    // at most two messages of a lane are on their way, or wait for the compute lane, at once.
    struct Received {
        int buffer = -1;
        int place = -1;
    };
    // Adds the receive, for micro step M, of the live values before PART, or of the gradients of
    // the live values after it.
    [[nodiscard]] Received receive_values(const StagePart& part, int m);
    [[nodiscard]] Received receive_gradients(const StagePart& part, int m);
    // Adds the send of VALUES after PART, or of GRADIENTS of the live values before it. Both are
    // freed once they are sent. GRADIENTS -1: nothing after the cut needs any, and the message says
    // so to the stage before.
    void send_values(const StagePart& part, int m, int values);
    void send_gradients(const StagePart& part, int m, int gradients);

    // Called when a work of the schedule begins, and with its last instruction when it ends.
    // Nothing is received for a work before the last but one has ended, so that a rank never waits
    // for another longer than a few works take.
    void begin_work() { turn_ = turns_[work_++ % 2]; }
    void end_work();

  private:
    struct Transfer {
        Op op = Op::kSend;
        bool gradients = false;
        StageSide other = {};
        int part = 0;  // part of the model before the cut
        int segment = 0;
        int micro_step = 0;
        int buffer = -1;
    };
    Instruction& add(const Transfer& transfer);
    [[nodiscard]] Received receive(const Transfer& transfer);

    const ModelInfo& model_;
    const StepPlanOptions& options_;
    StepPlan& plan_;
    std::array<std::array<int, 2>, kLanes> places_ = {};  // places of the lanes that receive
    std::array<int, kLanes> messages_ = {};               // messages of each lane so far
    int turns_[2] = {-1, -1};
    int turn_ = -1;
    int work_ = 0;
};

}  // namespace dslaunch::plan
