#include "plan/step/plan_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string_view>
#include <utility>

#include "plan/time/timed_plan.h"

namespace dslaunch::plan {

namespace {

std::string label(const StepPlan& plan, size_t i) {
    const Instruction& instruction = plan.instructions[i];
    return fmt::format("instruction {} ({} segment {} bucket {} micro step {})", i,
                       op_name(instruction.op), instruction.segment, instruction.bucket,
                       instruction.micro_step);
}

// Returns the lane at the other end of a lane that sends or receives. Such lanes come in pairs.
Lane opposite(Lane lane) {
    static_assert(static_cast<uint8_t>(Lane::kSend) % 2 == 0);
    return static_cast<Lane>(static_cast<uint8_t>(lane) ^ 1U);
}

// Returns true if INSTRUCTION is for a whole bucket or for the first chunk of its bucket.
// Instructions for the other chunks follow it.
bool begins_bucket(const StepPlan& plan, const Instruction& instruction) {
    return instruction.chunk < 0 ||
           instruction.chunk == plan.chunks.first_of_bucket[instruction.bucket];
}

// The instructions that end before a given instruction starts. They follow only from the order on
// each lane and from the waits. A lane runs its instructions in order, so the newest instruction on
// each lane is enough.
class HappensBefore {
  public:
    explicit HappensBefore(const StepPlan& plan) : plan_(plan) {
        Newest none;
        none.fill(-1);
        newest_.assign(plan.instructions.size(), none);
        Newest previous = none;
        for (size_t i = 0; i < plan.instructions.size(); ++i) {
            const Instruction& instruction = plan.instructions[i];
            int& lane = previous[static_cast<size_t>(instruction.lane)];
            if (lane >= 0) include(i, static_cast<size_t>(lane));
            for (const int wait : instruction.waits)
                if (wait >= 0 && static_cast<size_t>(wait) < i)
                    include(i, static_cast<size_t>(wait));
            lane = static_cast<int>(i);
        }
    }

    [[nodiscard]] bool ordered(size_t first, size_t second) const {
        return newest_[second][lane_of(first)] >= static_cast<int>(first);
    }

  private:
    using Newest = std::array<int, kLanes>;  // instructions, -1: none

    [[nodiscard]] size_t lane_of(size_t i) const {
        return static_cast<size_t>(plan_.instructions[i].lane);
    }
    void include(size_t i, size_t other) {
        for (size_t lane = 0; lane < kLanes; ++lane)
            newest_[i][lane] = std::max(newest_[i][lane], newest_[other][lane]);
        int& own = newest_[i][lane_of(other)];
        own = std::max(own, static_cast<int>(other));
    }

    const StepPlan& plan_;
    std::vector<Newest> newest_;  // by instruction
};

class Checker {
  public:
    explicit Checker(const StepPlan& plan)
        : plan_(plan), order_(plan), uses_(plan.buffers.size()) {}

    std::vector<std::string> run() {
        check_waits();
        collect_uses();
        for (size_t b = 0; b < plan_.buffers.size(); ++b) {
            check_lifetime(b);
            check_order(b);
        }
        check_reductions();
        check_gathers();
        check_sums();
        return std::move(problems_);
    }

  private:
    enum class How { kRead, kWrite, kCreate, kFree };
    struct Use {
        size_t instruction;
        How how;
    };

    void check_waits() {
        for (size_t i = 0; i < plan_.instructions.size(); ++i)
            for (const int wait : plan_.instructions[i].waits)
                if (wait < 0 || static_cast<size_t>(wait) >= i)
                    problems_.push_back(
                        fmt::format("{} waits for instruction {}, which does not come before it",
                                    label(plan_, i), wait));
    }

    void collect_uses() {
        for (size_t i = 0; i < plan_.instructions.size(); ++i) {
            const Instruction& instruction = plan_.instructions[i];
            const auto add = [&](const std::vector<int>& buffers, How how) {
                for (const int b : buffers) uses_[b].push_back({i, how});
            };
            add(instruction.creates, How::kCreate);
            add(instruction.reads, How::kRead);
            add(instruction.writes, How::kWrite);
            add(instruction.frees, How::kFree);
        }
    }

    void check_lifetime(size_t b) {
        const PlanBuffer& buffer = plan_.buffers[b];
        bool exists = buffer.persistent;
        bool freed = false;
        for (const Use& use : uses_[b]) {
            const auto problem = [&](const char* what) {
                problems_.push_back(
                    fmt::format("{} {} {}", label(plan_, use.instruction), what, buffer.name));
            };
            if (use.how == How::kCreate) {
                if (exists || buffer.persistent) problem("creates again");
                exists = true;
            } else if (!exists) {
                problem(freed ? "uses a buffer after its release:"
                              : "uses a buffer before its creation:");
            } else if (use.how == How::kFree) {
                if (buffer.persistent) problem("frees a buffer that must outlive the step:");
                exists = false;
                freed = true;
            }
        }
        if (exists && !buffer.persistent)
            problems_.push_back(fmt::format("{} is never freed", buffer.name));
    }

    // Checks that every two uses of a buffer are ordered if at least one of them changes it.
    void check_order(size_t b) {
        const std::vector<Use>& uses = uses_[b];
        for (size_t i = 0; i < uses.size(); ++i) {
            for (size_t j = i + 1; j < uses.size(); ++j) {
                if (uses[i].how == How::kRead && uses[j].how == How::kRead) continue;
                const size_t first = uses[i].instruction;
                const size_t second = uses[j].instruction;
                if (first == second || order_.ordered(first, second)) continue;
                problems_.push_back(
                    fmt::format("{} and {} both use {}, but their order is not defined",
                                label(plan_, first), label(plan_, second), plan_.buffers[b].name));
            }
        }
    }

    // Checks that no Backward adds to a bucket between the sum of its gradients and the next Claim
    // of their memory. A Reduce or Exchange sums the gradients; in a plan without Reduce, an
    // Accumulate or an Update sums them.
    void check_reductions() {
        for (size_t i = 0; i < plan_.instructions.size(); ++i) {
            const Instruction& sum = plan_.instructions[i];
            if (sum.op != Op::kReduce && sum.op != Op::kAccumulate && sum.op != Op::kUpdate &&
                sum.op != Op::kExchange)
                continue;
            if (!begins_bucket(plan_, sum)) continue;
            if (!is_posted_before(i))
                problems_.push_back(
                    fmt::format("{} sums a bucket that is not posted", label(plan_, i)));
            const int memory = (sum.op == Op::kReduce ? sum.writes : sum.reads).front();
            for (size_t j = i + 1; j < plan_.instructions.size(); ++j) {
                const Instruction& later = plan_.instructions[j];
                const bool writes = std::find(later.writes.begin(), later.writes.end(), memory) !=
                                    later.writes.end();
                if (writes && later.op == Op::kClaim) break;
                if (writes && (later.op == Op::kBackward || later.op == Op::kBackwardWeight))
                    problems_.push_back(fmt::format("{} adds to a bucket too late, after {}",
                                                    label(plan_, j), label(plan_, i)));
            }
        }
    }

    [[nodiscard]] bool is_posted_before(size_t sum) const {
        const Instruction& of = plan_.instructions[sum];
        for (size_t i = 0; i < sum; ++i) {
            const Instruction& post = plan_.instructions[i];
            if (post.op == Op::kPost && post.bucket == of.bucket &&
                (of.micro_step < 0 || post.micro_step == of.micro_step))
                return true;
        }
        return false;
    }

    // Checks that a bucket gathered into a buffer is there alone from its Gather to its Release,
    // and that all readers of the bucket read this buffer.
    void check_gathers() {
        std::map<int, int> buffer_of_place;  // indices into StepPlan::buffers
        for (const Instruction& gather : plan_.instructions)
            if (gather.op == Op::kGather && gather.buffer >= 0)
                buffer_of_place[gather.writes.back()] = kNotGathered;
        for (size_t i = 0; i < plan_.instructions.size(); ++i) {
            const Instruction& instruction = plan_.instructions[i];
            const auto problem = [&](std::string_view what) {
                problems_.push_back(fmt::format("{} {}", label(plan_, i), what));
            };
            const bool in_buffer = instruction.buffer >= 0;
            if (in_buffer && instruction.op == Op::kGather) {
                int& buffer = buffer_of_place[instruction.writes.back()];
                if (buffer != kNotGathered)
                    problem("gathers a bucket that was not released before");
                for (const auto& [place, held] : buffer_of_place)
                    if (held == instruction.writes.front())
                        problem("gathers into a buffer that still contains " + name_of(place));
                buffer = instruction.writes.front();
            } else if (in_buffer && instruction.op == Op::kRelease) {
                int& buffer = buffer_of_place[instruction.writes.back()];
                if (buffer != instruction.writes.front())
                    problem("releases a bucket that was not gathered into this buffer");
                buffer = kNotGathered;
            } else {
                check_gathered_reads(instruction, buffer_of_place, problem);
            }
        }
        for (const auto& [place, buffer] : buffer_of_place)
            if (buffer != kNotGathered) problems_.push_back(name_of(place) + " is never released");
    }

    template <typename Problem>
    void check_gathered_reads(const Instruction& instruction,
                              const std::map<int, int>& buffer_of_place,
                              const Problem& problem) const {
        const auto reads = [&](int buffer) {
            return std::find(instruction.reads.begin(), instruction.reads.end(), buffer) !=
                   instruction.reads.end();
        };
        for (const auto& [place, buffer] : buffer_of_place) {
            if (!reads(place)) continue;
            if (buffer == kNotGathered) {
                problem("reads a bucket that is not gathered: " + name_of(place));
            } else if (!reads(buffer)) {
                problem("reads the wrong buffer for the " + name_of(place));
            }
        }
    }

    // Checks the buffers for the sums of chunks. An Accumulate and an Update must find in the
    // buffer all terms that were added to the sums of their chunk before.
    void check_sums() {
        struct Sums {
            int chunk = -1;
            int terms = 0;
        };
        std::map<int, Sums> buffers;
        std::map<int, int> disk, given;  // number of terms of each chunk's sums
        for (size_t i = 0; i < plan_.instructions.size(); ++i) {
            const Instruction& instruction = plan_.instructions[i];
            if (instruction.sum_buffer < 0) continue;
            const int c = instruction.chunk;
            Sums& held = buffers[instruction.sum_buffer];
            const bool fresh = instruction.op == Op::kAccumulate && given[c] == 0;
            if (instruction.op == Op::kRead || fresh) held = {c, disk[c]};
            if (held.chunk != c || (instruction.op != Op::kWrite && held.terms != given[c]))
                problems_.push_back(
                    fmt::format("{} needs the sums of chunk {}, but its buffer contains other sums",
                                label(plan_, i), c));
            if (instruction.op == Op::kAccumulate) held.terms = ++given[c];
            if (instruction.op == Op::kWrite) disk[c] = held.terms;
        }
    }

    [[nodiscard]] const std::string& name_of(int buffer) const {
        return plan_.buffers[buffer].name;
    }

    static constexpr int kNotGathered = -1;
    const StepPlan& plan_;
    HappensBefore order_;
    std::vector<std::vector<Use>> uses_;
    std::vector<std::string> problems_;
};

// Simulates the plans of one host's ranks as tasks that take no time. A task stands for one
// instruction. It waits for the tasks of all instructions that must end first, in the same plan and
// in other ranks' plans.
class Rehearsal {
  public:
    Rehearsal(std::span<const StepPlan> plans, size_t ranks) : plans_(plans), ranks_(ranks) {
        timed_.lanes.resize(plans.size() * kLanes);
        places_.resize(plans.size());
        for (size_t r = 0; r < plans.size(); ++r) {
            std::array<int, kLanes> counts{};
            for (const Instruction& instruction : plans[r].instructions) {
                const auto lane = static_cast<size_t>(instruction.lane);
                places_[r].push_back({static_cast<int>(r * kLanes + lane), counts[lane]++});
            }
        }
        for (size_t r = 0; r < plans.size(); ++r)
            for (size_t i = 0; i < plans[r].instructions.size(); ++i)
                timed_.lanes[places_[r][i].lane].add({}, waits_of(r, i));
    }

    [[nodiscard]] std::vector<std::string> run() const {
        const TimedRun run = try_timed_plan(timed_);
        std::vector<std::string> stuck;
        for (size_t r = 0; r < plans_.size(); ++r)
            for (size_t i = 0; i < places_[r].size(); ++i) {
                const TaskRef& place = places_[r][i];
                if (std::ssize(run.spans[place.lane]) != place.index) continue;
                stuck.push_back(fmt::format("rank {}'s {} lane never gets past {}", plans_[r].rank,
                                            lane_name(plans_[r].instructions[i].lane),
                                            label(plans_[r], i)));
            }
        return stuck;
    }

  private:
    using Waits = std::vector<TaskRef>;

    [[nodiscard]] Waits waits_of(size_t r, size_t i) const {
        const Instruction& instruction = plans_[r].instructions[i];
        Waits waits = own_waits(r, i);
        switch (instruction.op) {
            case Op::kClaim:
                wait_for_readers(r, i, waits);
                break;
            case Op::kGather:
                meet_all(r, i, waits);
                break;
            case Op::kExchange:
                meet_all(r, i, waits);
                wait_for_sums(r, instruction, waits);
                break;
            case Op::kReduce:
                wait_for_all(r, Op::kPost, instruction, waits);
                break;
            case Op::kAccumulate:
                if (begins_bucket(plans_[r], instruction)) wait_for_summed(r, instruction, waits);
                break;
            case Op::kUpdate:
                wait_for_sums(r, instruction, waits);
                break;
            case Op::kNorm:
                for (size_t other = 0; other < plans_.size(); ++other)
                    wait_for_last(other, plans_[other].instructions.size(), waits,
                                  [](const Instruction& one) { return one.op == Op::kReduce; });
                break;
            case Op::kSend:
            case Op::kReceive:
                meet_peer(r, i, waits);
                break;
            default:
                break;
        }
        return waits;
    }

    [[nodiscard]] Waits own_waits(size_t r, size_t i) const {
        Waits waits;
        for (const int wait : plans_[r].instructions[i].waits) waits.push_back(places_[r][wait]);
        return waits;
    }
    // Makes the task wait until instruction I of rank R may begin.
    void meet(size_t r, size_t i, Waits& waits) const {
        const TaskRef& place = places_[r][i];
        if (place.index > 0) waits.push_back({place.lane, place.index - 1});
        const Waits of_other = own_waits(r, i);
        waits.insert(waits.end(), of_other.begin(), of_other.end());
    }
    void wait_for_ever(size_t r, size_t i, Waits& waits) const {
        waits.push_back({places_[r][i].lane, std::numeric_limits<int>::max()});
    }

    // Returns the first rank of the stage that rank R belongs to.
    [[nodiscard]] size_t stage_begin(size_t r) const { return r / ranks_ * ranks_; }
    // Makes the task wait until every other rank of the stage may begin instruction I: no rank can
    // finish the instruction alone.
    void meet_all(size_t r, size_t i, Waits& waits) const {
        for (size_t other = stage_begin(r); other < stage_begin(r) + ranks_; ++other)
            if (other != r) meet(other, i, waits);
    }
    // Makes the task wait for the other end of a transfer: a Send and its Receive end only when
    // both may begin. If the peer has no such instruction, the task waits for ever.
    void meet_peer(size_t r, size_t i, Waits& waits) const {
        const Instruction& own = plans_[r].instructions[i];
        const size_t other = static_cast<size_t>(own.peer) * ranks_ + r % ranks_;
        if (own.peer < 0 || other >= plans_.size()) return wait_for_ever(r, i, waits);
        const std::vector<Instruction>& instructions = plans_[other].instructions;
        const auto end = std::ranges::find_if(instructions, [&](const Instruction& one) {
            return one.op == (own.op == Op::kSend ? Op::kReceive : Op::kSend) &&
                   one.part == own.part && one.gradients == own.gradients &&
                   one.micro_step == own.micro_step;
        });
        const bool meets = end != instructions.end() && end->peer == static_cast<int>(r / ranks_) &&
                           end->lane == opposite(own.lane);
        if (!meets) return wait_for_ever(r, i, waits);
        meet(other, static_cast<size_t>(end - instructions.begin()), waits);
    }
    // Makes the task of the Claim with index CLAIM wait until every rank of the stage has read the
    // earlier gradients in the claimed memory.
    void wait_for_readers(size_t of, size_t claim, Waits& waits) const {
        for (size_t r = stage_begin(of); r < stage_begin(of) + ranks_; ++r) {
            const int memory = plans_[r].instructions[claim].writes.front();
            wait_for_last(r, claim, waits, [&](const Instruction& earlier) {
                return earlier.lane == Lane::kCommunication &&
                       (std::ranges::count(earlier.reads, memory) > 0 ||
                        std::ranges::count(earlier.writes, memory) > 0);
            });
        }
    }
    // Makes the task wait for all of rank R's instructions before END for which IS_MEANT returns
    // true. The last such instruction of each lane is enough, because a lane runs its instructions
    // in order.
    template <typename IsMeant>
    void wait_for_last(size_t r, size_t end, Waits& waits, const IsMeant& is_meant) const {
        std::array<bool, kLanes> found{};
        for (size_t i = end; i-- > 0;) {
            const Instruction& one = plans_[r].instructions[i];
            if (is_meant(one) && !std::exchange(found[static_cast<size_t>(one.lane)], true))
                waits.push_back(places_[r][i]);
        }
    }
    // Makes the task wait until every rank of the stage has done OP for the same bucket as LIKE,
    // and for the same micro step if LIKE has one.
    void wait_for_all(size_t of, Op op, const Instruction& like, Waits& waits) const {
        for (size_t r = stage_begin(of); r < stage_begin(of) + ranks_; ++r) {
            const std::vector<Instruction>& instructions = plans_[r].instructions;
            const auto found = std::ranges::find_if(instructions, [&](const Instruction& one) {
                return one.op == op && one.bucket == like.bucket &&
                       (like.micro_step < 0 || one.micro_step == like.micro_step);
            });
            if (found == instructions.end()) return wait_for_ever(of, 0, waits);
            waits.push_back(places_[r][found - instructions.begin()]);
        }
    }
    void wait_for_summed(size_t r, const Instruction& instruction, Waits& waits) const {
        wait_for_all(r, has(r, Op::kReduce) ? Op::kReduce : Op::kPost, instruction, waits);
    }
    // Makes INSTRUCTION wait for the sums of the gradients that it uses, unless the plan has a
    // Norm, which waits for them earlier.
    void wait_for_sums(size_t r, const Instruction& instruction, Waits& waits) const {
        if (!has(r, Op::kNorm) && begins_bucket(plans_[r], instruction))
            wait_for_summed(r, instruction, waits);
    }
    [[nodiscard]] bool has(size_t r, Op op) const {
        return std::ranges::count(plans_[r].instructions, op, &Instruction::op) > 0;
    }

    std::span<const StepPlan> plans_;
    size_t ranks_;                              // ranks of a stage
    std::vector<std::vector<TaskRef>> places_;  // by rank, then instruction
    TimedPlan timed_;
};

bool is_collective(Op op) {
    return op == Op::kReduce || op == Op::kNorm || op == Op::kExchange || op == Op::kAccumulate ||
           op == Op::kUpdate || op == Op::kGather;
}

}  // namespace

std::vector<std::string> check_plan(const StepPlan& plan) {
    return Checker(plan).run();
}

std::vector<std::string> check_plans(std::span<const StepPlan> plans, int stages) {
    std::vector<std::string> problems;
    const size_t ranks = plans.size() / static_cast<size_t>(stages);
    const auto collectives = [](const StepPlan& plan) {
        std::vector<size_t> found;
        for (size_t i = 0; i < plan.instructions.size(); ++i)
            if (is_collective(plan.instructions[i].op)) found.push_back(i);
        return found;
    };
    for (size_t r = 0; r < plans.size(); ++r) {
        const StepPlan& of_first = plans[r / ranks * ranks];
        const std::vector<size_t> mine = collectives(plans[r]);
        const std::vector<size_t> first = collectives(of_first);
        for (size_t k = 0; k < std::max(mine.size(), first.size()); ++k) {
            if (k < mine.size() && k < first.size()) {
                const Instruction& a = of_first.instructions[first[k]];
                const Instruction& b = plans[r].instructions[mine[k]];
                if (a.op == b.op && a.bucket == b.bucket && a.micro_step == b.micro_step &&
                    a.buffer == b.buffer && a.chunk == b.chunk && a.sum_buffer == b.sum_buffer)
                    continue;
            }
            problems.push_back(
                fmt::format("collective {} differs: rank {} has {}, rank {} has {}", k,
                            of_first.rank, k < first.size() ? label(of_first, first[k]) : "none",
                            plans[r].rank, k < mine.size() ? label(plans[r], mine[k]) : "none"));
            break;
        }
    }
    for (std::string& stuck : Rehearsal(plans, ranks).run()) problems.push_back(std::move(stuck));
    return problems;
}

std::array<TierPeak, kTiers> peak_by_tier(const StepPlan& plan) {
    std::array<TierPeak, kTiers> tiers{};
    std::array<Bytes, kTiers> held{};
    const auto tier_of = [&](int b) { return static_cast<size_t>(plan.buffers[b].tier); };
    for (const PlanBuffer& buffer : plan.buffers)
        if (buffer.persistent) tiers[static_cast<size_t>(buffer.tier)].persistent += buffer.bytes;
    for (size_t t = 0; t < tiers.size(); ++t) tiers[t].peak = held[t] = tiers[t].persistent;
    for (size_t i = 0; i < plan.instructions.size(); ++i) {
        const Instruction& instruction = plan.instructions[i];
        for (const int b : instruction.creates) held[tier_of(b)] += plan.buffers[b].bytes;
        for (size_t t = 0; t < tiers.size(); ++t) {
            if (held[t] <= tiers[t].peak) continue;
            tiers[t].peak = held[t];
            tiers[t].instruction = static_cast<int>(i);
        }
        for (const int b : instruction.frees) held[tier_of(b)] -= plan.buffers[b].bytes;
    }
    return tiers;
}

std::array<Bytes, kBufferKinds> peak_by_kind(const StepPlan& plan) {
    std::array<Bytes, kBufferKinds> held{};
    const auto buffer = [&](int b) -> const PlanBuffer& { return plan.buffers[b]; };
    for (const PlanBuffer& one : plan.buffers)
        if (one.persistent) held[static_cast<size_t>(one.kind)] += one.bytes;
    std::array<Bytes, kBufferKinds> peak = held;
    for (const Instruction& instruction : plan.instructions) {
        for (const int b : instruction.creates)
            held[static_cast<size_t>(buffer(b).kind)] += buffer(b).bytes;
        for (size_t kind = 0; kind < peak.size(); ++kind)
            peak[kind] = std::max(peak[kind], held[static_cast<size_t>(kind)]);
        for (const int b : instruction.frees)
            held[static_cast<size_t>(buffer(b).kind)] -= buffer(b).bytes;
    }
    return peak;
}

}  // namespace dslaunch::plan
