// The part of a step plan that joins the stages of a pipeline: sends and receives, and how far
// ahead of the compute lane they may be. Where it stands: stage work -> [here] -> step plan
// builder. Used by one thread.
#pragma once

#include "plan/step_plan.h"

namespace dslaunch {

class StageTransfers {
  public:
    // Everything is added to PLAN. All must outlive this.
    StageTransfers(const ModelInfo& model, const StepPlanOptions& options, StepPlan& plan)
        : model_(model), options_(options), plan_(plan) {}

    // Outside of a pipeline none.
    void add_places();

    // What comes for micro step M, as a buffer that its reader frees: the live values before the
    // first segment, the gradients of those behind the last one.
    [[nodiscard]] int receive_values(int m);
    [[nodiscard]] int receive_gradients(int m);
    // VALUES behind the last segment, GRADIENTS of those before the first one; freed once they are
    // gone. No gradients, -1: nothing behind the cut wants any, which the stage before is told.
    void send_values(int m, int values);
    void send_gradients(int m, int gradients);

    // Written by the Receive and by whoever uses what came: two of a sort are on their way, or wait
    // for the compute lane, at once.
    [[nodiscard]] int place_of_values(int m) const { return places_[0][m % 2]; }
    [[nodiscard]] int place_of_gradients(int m) const { return places_[1][m % 2]; }

    // A work of the schedule begins, and, with its last instruction, ends: nothing is received for
    // it before the last but one has ended, so that a rank never waits for another one longer than
    // a few works take.
    void begin_work() { turn_ = turns_[work_++ % 2]; }
    void end_work();

  private:
    struct Transfer {
        Op op = Op::kSend;
        bool gradients = false;
        int segment = 0;
        int micro_step = 0;
        int buffer = -1;
    };
    Instruction& add(const Transfer& transfer);
    int add_buffer(PlanBuffer buffer);
    [[nodiscard]] int last_segment() const { return static_cast<int>(model_.segments.size()) - 1; }

    const ModelInfo& model_;
    const StepPlanOptions& options_;
    StepPlan& plan_;
    int places_[2][2] = {{-1, -1}, {-1, -1}};  // of values, of gradients
    int turns_[2] = {-1, -1};
    int turn_ = -1;
    int work_ = 0;
};

}  // namespace dslaunch
