#include "plan/time/timed_plan.h"

#include <algorithm>
#include <functional>
#include <queue>

#include "base/check.h"

namespace dslaunch::plan {
namespace {

// Runs a plan. The end of a task that shares no processors is known as soon as the ends of all
// tasks that it waits for are known. Only tasks that share processors are simulated with a clock,
// in the order of time, because their duration depends on the other tasks that run then.
class PlanRun {
  public:
    explicit PlanRun(const TimedPlan& plan) : plan_(plan), lanes_(plan.lanes.size()) {
        run_.lanes.resize(plan.lanes.size());
        for (size_t l = 0; l < plan.lanes.size(); ++l) {
            run_.spans.emplace_back().reserve(plan.lanes[l].tasks.size());
            const int processors = plan.lanes[l].processors;
            if (processors < 0) continue;
            if (processors >= std::ssize(sharing_)) sharing_.resize(processors + size_t{1});
            sharing_[processors].push_back(static_cast<int>(l));
        }
    }

    TimedRun run() {
        for (auto lane = static_cast<int>(lanes_.size()); lane-- > 0;) to_try_.push_back(lane);
        for (try_lanes(); !events_.empty(); try_lanes()) {
            const Event event = events_.top();
            events_.pop();
            Lane& lane = lanes_[event.lane];
            if (event.number != lane.event) continue;  // a later event has replaced it
            if (lane.speed > 0) {
                lane.speed = 0;
                change_speeds(event.lane, event.at_s);
                finish(event.lane, {lane.begin_s, event.at_s});
                to_try_.push_back(event.lane);
            } else {
                lane.begin_s = lane.since_s = event.at_s;
                lane.left_s = next_task(event.lane).seconds;
                lane.speed = 1;
                expect(event.lane, event.at_s + lane.left_s);
                change_speeds(event.lane, event.at_s);
            }
        }
        count_idle();
        return std::move(run_);
    }

  private:
    struct Lane {
        double free_s = 0;
        Holding held;
        std::vector<int> waiting;  // lanes whose next task waits for a task of this lane
        // The fields below are for a task that is simulated with the clock.
        double begin_s = 0;
        double since_s = 0;  // time of the last change of speed
        double left_s = 0;   // seconds left at that time, if alone on its processors
        double speed = 0;    // 0: no task runs
        int event = 0;       // number of its valid event; earlier events are ignored
    };
    // The begin or the end of a task that is simulated with the clock.
    struct Event {
        double at_s;
        int lane;
        int number;
        bool operator>(const Event& other) const {
            return at_s != other.at_s ? at_s > other.at_s : lane > other.lane;
        }
    };

    [[nodiscard]] const TimedTask& next_task(int lane) const {
        return plan_.lanes[lane].tasks[run_.spans[lane].size()];
    }

    void try_lanes() {
        while (!to_try_.empty()) {
            const int lane = to_try_.back();
            to_try_.pop_back();
            advance(lane);
        }
    }

    // Runs the tasks of a lane up to the first that waits for another lane or must be simulated
    // with the clock.
    void advance(int l) {
        const TimedLane& lane = plan_.lanes[l];
        const std::vector<TimedSpan>& spans = run_.spans[l];
        while (spans.size() < lane.tasks.size()) {
            const TimedTask& task = lane.tasks[spans.size()];
            double begin_s = lanes_[l].free_s;
            int wait = spans.empty() ? 0 : lane.tasks[spans.size() - 1].waits_end;
            for (; wait < task.waits_end; ++wait) {
                const TaskRef& of = lane.waits[wait];
                if (of.index >= std::ssize(run_.spans[of.lane])) {
                    lanes_[of.lane].waiting.push_back(l);
                    return;
                }
                begin_s = std::max(begin_s, run_.spans[of.lane][of.index].end_s);
            }
            if (task.shares && task.seconds > 0) return expect(l, begin_s);
            finish(l, {begin_s, begin_s + task.seconds});
        }
    }

    void expect(int lane, double at_s) { events_.push({at_s, lane, ++lanes_[lane].event}); }

    // Changes the speeds of the lanes that share processors with LANE, after a task of LANE has
    // begun or ended.
    void change_speeds(int lane, double now_s) {
        const std::vector<int>& all = sharing_[plan_.lanes[lane].processors];
        const auto running =
            std::ranges::count_if(all, [&](int other) { return lanes_[other].speed > 0; });
        for (const int l : all) {
            Lane& of = lanes_[l];
            const double speed = running > 1 ? plan_.lanes[l].speed_beside : 1;
            if (of.speed <= 0 || of.speed == speed) continue;
            of.left_s -= (now_s - of.since_s) * of.speed;
            of.since_s = now_s;
            of.speed = speed;
            expect(l, now_s + std::max(0.0, of.left_s) / speed);
        }
    }

    void finish(int l, TimedSpan span) {
        const TimedTask& task = next_task(l);
        Lane& lane = lanes_[l];
        LaneUse& use = run_.lanes[l];
        if (run_.spans[l].empty()) use.begin_s = span.begin_s;
        use.busy_s += span.end_s - span.begin_s;
        lane.free_s = use.end_s = span.end_s;
        lane.held.live += task.takes.live;
        lane.held.bytes += task.takes.bytes;
        use.live_max = std::max(use.live_max, lane.held.live);
        use.live_bytes_max = std::max(use.live_bytes_max, lane.held.bytes);
        lane.held.live -= task.gives.live;
        lane.held.bytes -= task.gives.bytes;
        run_.step_s = std::max(run_.step_s, span.end_s);
        run_.spans[l].push_back(span);
        to_try_.insert(to_try_.end(), lane.waiting.begin(), lane.waiting.end());
        lane.waiting.clear();
    }

    void count_idle() {
        double busy_s = 0;
        int lanes = 0;
        for (size_t l = 0; l < run_.lanes.size(); ++l) {
            if (plan_.lanes[l].processors < 0) continue;
            busy_s += run_.lanes[l].busy_s;
            ++lanes;
        }
        if (run_.step_s > 0 && lanes > 0) run_.idle_share = 1 - busy_s / (run_.step_s * lanes);
    }

    const TimedPlan& plan_;
    std::vector<Lane> lanes_;
    std::vector<std::vector<int>> sharing_;  // by processors, the lanes that share them
    std::vector<int> to_try_;                // lanes that may be able to continue now
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
    TimedRun run_;
};

}  // namespace

void TimedLane::add(TimedTask task, std::span<const TaskRef> waits_for) {
    waits.insert(waits.end(), waits_for.begin(), waits_for.end());
    task.waits_end = static_cast<int>(waits.size());
    tasks.push_back(task);
}

TimedRun try_timed_plan(const TimedPlan& plan) {
    return PlanRun(plan).run();
}

TimedRun run_timed_plan(const TimedPlan& plan) {
    TimedRun run = try_timed_plan(plan);
    for (size_t lane = 0; lane < plan.lanes.size(); ++lane)
        DSL_CHECK(run.spans[lane].size() == plan.lanes[lane].tasks.size(),
                  "task {} of lane {} waits forever", run.spans[lane].size(), lane);
    return run;
}

}  // namespace dslaunch::plan
