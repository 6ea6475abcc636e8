// The part of a step plan that connects the stages of a pipeline: sends and receives, and the limit
// on how far they may run ahead of the compute lane. Data path: stage work -> [here] -> step plan
// builder. Used by one thread.
#pragma once

#include <array>

#include "plan/step/step_plan.h"

namespace dslaunch::plan {

// Adds sends and receives to one step plan.
class StageTransfers {
  public:
    // All calls add to PLAN. MODEL, OPTIONS and PLAN must outlive this object.
    StageTransfers(const ModelInfo& model, const StepPlanOptions& options, StepPlan& plan)
        : model_(model), options_(options), plan_(plan) {}

    // Adds two places for the messages of each lane that receives (see Received). Adds nothing
    // without a pipeline.
    void add_places();

    // A received message. The instruction that uses the message must free `buffer` and write
    // `place`. Each lane has two places, so at most two of its messages at once are in transit or
    // wait for the compute lane.
    struct Received {
        int buffer = -1;
        int place = -1;
    };
    // Adds the receive of the live values before PART for micro step M. receive_gradients receives
    // the gradients of the live values after PART.
    [[nodiscard]] Received receive_values(const StagePart& part, int m);
    [[nodiscard]] Received receive_gradients(const StagePart& part, int m);
    // Adds the send of VALUES, the live values after PART. send_gradients sends GRADIENTS, the
    // gradients of the live values before PART. The buffers are freed once they are sent. If
    // GRADIENTS is -1, nothing after the cut needs gradients, and an empty message says so to the
    // stage before.
    void send_values(const StagePart& part, int m, int values);
    void send_gradients(const StagePart& part, int m, int gradients);

    // Call begin_work before adding a work of the schedule, and end_work after adding its last
    // instruction. Messages are received only shortly before their work: for example, a message for
    // work 5 only after work 3 has ended. So a rank never waits for another rank longer than a few
    // works take.
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
    std::array<std::array<int, 2>, kLanes> places_ = {};  // the two places of each receiving lane
    std::array<int, kLanes> messages_ = {};               // number of messages of each lane so far
    int turns_[2] = {-1, -1};
    int turn_ = -1;
    int work_ = 0;
};

}  // namespace dslaunch::plan
