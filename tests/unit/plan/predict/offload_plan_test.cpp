#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/text.h"
#include "plan/predict/admission.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"
#include "support/catch.h"

namespace dslaunch {

using namespace plan;

namespace {

constexpr int64_t kLayerNumel = 65536;

// Returns LAYERS of one parameter each. The last layer reads the first one's too (tied), and the
// second is frozen.
ModelInfo model_of(int layers) {
    ModelInfo model;
    for (int s = 0; s < layers; ++s) {
        SegmentInfo segment;
        segment.name = fmt::format("layer.{}", s);
        segment.output_bytes = Bytes{100};
        segment.activation_bytes = Bytes{500};
        segment.parameters = {s};
        if (s > 0 && s + 1 == layers) segment.parameters.push_back(0);
        model.parameters.push_back({segment.name, kLayerNumel, 4, s != 1});
        model.segments.push_back(segment);
    }
    return model;
}

struct World {
    std::vector<int> nodes = {1};
    int stage = 3;
    OffloadPlan offload = {};
    int64_t accumulation = 1;
    bool clip = false;
    bool half = false;
    int64_t groups = 0;

    [[nodiscard]] std::vector<StepPlan> plans(const ModelInfo& model) const {
        const FlatLayout layout = make_flat_layout(model, {1 << 20, 1, true, 0, 64});
        int world_size = 0;
        for (const int ranks : nodes) world_size += ranks;
        const Partition partition = make_partition(layout, model, ShardBy::kFlat, world_size);
        std::vector<StepPlan> made;
        for (const int ranks : nodes)
            for (int local = 0; local < ranks; ++local) {
                StepPlanOptions options;
                options.rank = static_cast<int>(made.size());
                options.world_size = world_size;
                options.local_rank = local;
                options.local_world_size = ranks;
                options.node_sizes = nodes;
                options.accumulation_steps = accumulation;
                options.recompute_groups = groups;
                options.clip = clip;
                options.stage = stage;
                options.parameter_bytes = half ? 2 : 4;
                options.master = half;
                options.partition = &partition;
                options.offload = offload;
                made.push_back(make_step_plan(model, layout, options));
            }
        return made;
    }
};

// Carries out a plan on numbers instead of tensors. Each buffer and the disk hold a chunk and the
// number of its updates, or a chunk's sums and the number of the last micro step in them. Micro
// steps are counted over all steps. Lanes take turns at random, as far as the waits let them.
class Rehearsal {
  public:
    Rehearsal(const StepPlan& plan, unsigned seed) : plan_(plan), random_(seed) {
        for (size_t c = 0; c < plan.chunks.all.size(); ++c) disk_[static_cast<int>(c)] = 0;
        for (size_t t = 0; t < plan.chunks.turns.size(); ++t)
            buffers_[plan.buffer_of_turn[t]] = {plan.chunks.turns[t], 0};
    }

    // Makes a step. Returns the first fault, or an empty text.
    std::string step() {
        ++step_;
        added_before_ = added_;
        std::vector<std::vector<size_t>> lanes(kLanes);
        for (size_t i = 0; i < plan_.instructions.size(); ++i)
            lanes[static_cast<size_t>(plan_.instructions[i].lane)].push_back(i);
        std::vector<size_t> next(kLanes, 0);
        std::vector<char> done(plan_.instructions.size(), 0);
        for (size_t left = plan_.instructions.size(); left > 0;) {
            const size_t lane = random_() % kLanes;
            if (next[lane] == lanes[lane].size()) continue;
            const size_t i = lanes[lane][next[lane]];
            bool ready = true;
            for (const int wait : plan_.instructions[i].waits) ready = ready && done[wait] != 0;
            if (!ready) continue;
            const std::string wrong = run(plan_.instructions[i]);
            if (!wrong.empty()) return fmt::format("instruction {}: {}", i, wrong);
            done[i] = 1;
            ++next[lane];
            --left;
        }
        for (const int c : plan_.chunks.turns)
            if (newest(c) != step_) return fmt::format("chunk {} is lost", c);
        return "";
    }

  private:
    struct Held {
        int chunk = -1;
        int version = 0;
    };

    [[nodiscard]] int newest(int chunk) const {
        for (const auto& [buffer, held] : buffers_)
            if (held.chunk == chunk) return held.version;
        return disk_.at(chunk);
    }

    // The sums of a micro step are added to the sums of earlier micro steps of the same step. All
    // of them must be there when the chunk is updated.
    std::string run_sums(const Instruction& instruction) {
        const int c = instruction.chunk;
        Held& held = sums_[instruction.sum_buffer];
        if (instruction.op == Op::kRead) {
            held = {c, sums_on_disk_[c]};
        } else if (instruction.op == Op::kWrite) {
            if (held.chunk != c) return "writes the sums of another chunk";
            sums_on_disk_[c] = held.version;
        } else if (instruction.op == Op::kUpdate) {
            if (held.chunk != c || held.version != added_[c]) return "updates by other sums";
        } else {
            const bool first = added_[c] == added_before_[c];
            if (!first && (held.chunk != c || held.version != added_[c])) return "adds to others";
            held = {c, ++added_[c]};
        }
        return "";
    }

    std::string run(const Instruction& instruction) {
        const int c = instruction.chunk;
        std::string wrong;
        if (instruction.sum_buffer >= 0) wrong = run_sums(instruction);
        if (!wrong.empty() || (c >= 0 && instruction.buffer < 0)) return wrong;
        if (instruction.op == Op::kWrite) {
            if (buffers_[instruction.buffer].chunk != c) return "writes a buffer of another chunk";
            disk_[c] = buffers_[instruction.buffer].version;
        } else if (instruction.op == Op::kRead && c >= 0) {
            const Held held = buffers_[instruction.buffer];
            if (held.chunk >= 0 && disk_[held.chunk] != held.version) return "drops an update";
            buffers_[instruction.buffer] = {c, disk_[c]};
        } else if (instruction.op == Op::kUpdate && instruction.buffer >= 0) {
            Held& held = buffers_[instruction.buffer];
            if (held.chunk != c) return "updates another chunk";
            if (++held.version != step_) return "updates what is stale";
        } else if (instruction.op == Op::kRead) {
            const StateChunks& chunks = plan_.chunks;
            const auto b = static_cast<size_t>(instruction.bucket);
            for (int k = chunks.first_of_bucket[b]; k < chunks.first_of_bucket[b + 1]; ++k) {
                const bool trained = chunks.all[k].turn >= 0;
                if (trained && newest(k) != step_ - 1) return "gathers what is stale";
            }
        }
        return "";
    }

    const StepPlan& plan_;
    std::mt19937 random_;
    std::map<int, int> disk_;
    std::map<int, Held> buffers_;
    std::map<int, Held> sums_;
    std::map<int, int> sums_on_disk_;
    std::map<int, int> added_;         // micro steps added to each chunk
    std::map<int, int> added_before_;  // the same before this step
    int step_ = 0;
};

// Returns the first fault in 20 orders of the lanes over three steps each.
std::string rehearse(const StepPlan& plan) {
    std::string wrong;
    for (unsigned seed = 0; seed < 20 && wrong.empty(); ++seed) {
        Rehearsal rehearsal(plan, seed);
        for (int step = 0; step < 3 && wrong.empty(); ++step) wrong = rehearsal.step();
    }
    return wrong;
}

int64_t bytes_in(const StepPlan& plan, BufferKind kind, Tier tier) {
    int64_t bytes = 0;
    for (const PlanBuffer& buffer : plan.buffers)
        if (buffer.tier == tier && buffer.kind == kind) bytes += buffer.bytes.value;
    return bytes;
}

int64_t bytes_on_disk(const StepPlan& plan, BufferKind kind) {
    return bytes_in(plan, kind, Tier::kDisk);
}

// Returns a world whose step reduces every micro step and needs the norm.
World clipped_world(int64_t accumulation) {
    World world;
    world.offload = {true, false, 16384, 2};
    world.accumulation = accumulation;
    world.clip = true;
    return world;
}

}  // namespace

TEST_CASE("every offloaded plan is sound, and updates each chunk where it lies, newest first") {
    const std::vector<std::vector<int>> worlds = {{1}, {2}, {5}, {1, 1}, {2, 1}};
    const ModelInfo model = model_of(4);
    for (const std::vector<int>& nodes : worlds)
        for (const int stage : {1, 2, 3})
            for (const int64_t buffers : {2, 3, 7})
                for (const int64_t accumulation : {1, 2, 3})
                    for (const int flags : {0, 1, 2, 3, 4, 7, 9, 12, 15}) {
                        World world{nodes, stage, {true, stage == 3 && (flags & 4) != 0}};
                        world.offload.chunk_numel = 16384;
                        if ((flags & 8) != 0) world.offload.eviction = EvictionRule::kLfu;
                        world.offload.swap_buffers = buffers;
                        world.offload.ratio = flags == 3 ? 0.5 : 1.0;
                        world.offload.adaptive = flags == 2 || flags == 4;
                        world.offload.kept_chunks = 3;
                        world.accumulation = accumulation;
                        world.clip = (flags & 1) != 0;
                        world.half = (flags & 2) != 0;
                        world.groups = flags == 7 || flags == 15 ? 2 : 0;
                        const std::vector<StepPlan> plans = world.plans(model);
                        CAPTURE(nodes, stage, buffers, accumulation, flags);
                        for (const StepPlan& plan : plans)
                            CHECK(plan.hash() == plans.front().hash());
                        CHECK(join(check_plan(plans.front()), "; ") == "");
                        CHECK(join(check_plans(plans), "; ") == "");
                        Rehearsal rehearsal(plans.front(), 7);
                        for (int step = 0; step < 4; ++step) REQUIRE(rehearsal.step() == "");
                    }
}

TEST_CASE("a plan whose writes are not waited for loses an update") {
    World world;
    world.offload = {true, true, 16384, 2};
    StepPlan plan = world.plans(model_of(4)).front();
    for (Instruction& instruction : plan.instructions)
        if (instruction.lane == Lane::kRead) instruction.waits.clear();
    CHECK_FALSE(check_plan(plan).empty());
    CHECK(rehearse(plan) != "");
}

TEST_CASE("a plan whose sums are moved without waiting, or not at all, updates by other sums") {
    const StepPlan sound = clipped_world(2).plans(model_of(4)).front();
    REQUIRE(rehearse(sound) == "");
    const auto moves_sums = [](const Instruction& instruction, Lane lane) {
        return instruction.lane == lane && instruction.sum_buffer >= 0;
    };
    for (const Lane lane : {Lane::kRead, Lane::kWrite, Lane::kCommunication}) {
        INFO("waits of the " << lane_name(lane) << " lane");
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (moves_sums(instruction, lane)) instruction.waits.clear();
        CHECK_FALSE(check_plan(plan).empty());
        CHECK(rehearse(plan) != "");
    }
    for (const Lane lane : {Lane::kRead, Lane::kWrite}) {
        INFO("nothing on the " << lane_name(lane) << " lane");
        StepPlan plan = sound;
        for (Instruction& instruction : plan.instructions)
            if (moves_sums(instruction, lane) && instruction.buffer < 0)
                instruction.sum_buffer = -1;
        CHECK_FALSE(check_plan(plan).empty());
        CHECK(rehearse(plan) != "");
    }
}

TEST_CASE("what is offloaded is on disk to the byte, and passes once each way in a step") {
    const ModelInfo model = model_of(8);
    const int64_t trained = 7 * kLayerNumel;
    for (const int ranks : {1, 2, 4})
        for (const bool half : {false, true})
            for (const bool parameters : {false, true})
                // The number of micro steps whose gradients are kept; 0: the step updates as it
                // reduces.
                for (const int64_t sums : {0, 1, 3}) {
                    World world{{ranks}, 3, {true, parameters}};
                    world.offload.chunk_numel = 16384;
                    world.offload.swap_buffers = 3;
                    world.half = half;
                    world.clip = sums > 0;
                    world.accumulation = std::max<int64_t>(sums, 1);
                    const StepPlan plan = world.plans(model).front();
                    CAPTURE(ranks, half, parameters, sums);
                    const int64_t own = trained / ranks;
                    CHECK(bytes_on_disk(plan, BufferKind::kMoments) == 8 * own);
                    CHECK(bytes_on_disk(plan, BufferKind::kMaster) == (half ? 4 * own : 0));
                    CHECK(bytes_on_disk(plan, BufferKind::kParameters) ==
                          (parameters ? (half ? 2 : 4) * 8 * kLayerNumel / ranks : 0));
                    CHECK(bytes_on_disk(plan, BufferKind::kGradients) == (sums > 0 ? 4 * own : 0));
                    // Moments are read and written, and the fp32 value if it is on disk; a 16-bit
                    // copy is only written. The sums of a chunk are written by each micro step, and
                    // read by the next one or the update.
                    const int64_t read = 8 + (half || parameters ? 4 : 0);
                    const int64_t written = read + (half && parameters ? 2 : 0);
                    int64_t bytes_read = 0;
                    int64_t bytes_written = 0;
                    for (const Instruction& instruction : plan.instructions) {
                        if (instruction.chunk < 0) continue;
                        if (instruction.op == Op::kRead) bytes_read += instruction.bytes.value;
                        if (instruction.op == Op::kWrite) bytes_written += instruction.bytes.value;
                    }
                    CHECK(static_cast<int64_t>(plan.chunks.turns.size()) == own / 16384);
                    CHECK(bytes_read == (read + 4 * sums) * own);
                    CHECK(bytes_written == (written + 4 * sums) * own);
                    CHECK(bytes_in(plan, BufferKind::kOffload, Tier::kMemory) ==
                          3 * 16384 * (written + (sums > 0 ? 4 : 0)));
                }
}

TEST_CASE("gradients that wait for the norm are in memory only as far as the states are") {
    const ModelInfo model = model_of(9);
    const int64_t trained = 8 * kLayerNumel;
    for (const int ranks : {1, 2})
        for (const bool half : {false, true}) {
            World world{{ranks}, 2};
            world.clip = true;
            world.half = half;
            world.accumulation = 2;
            const StepPlan in_memory = world.plans(model).front();
            const Bytes before = host_need({&in_memory, 1}, {}, {}).private_total;
            for (const double ratio : {1.0, 0.5}) {
                world.offload = {true, false, 16384, 3, ratio};
                const StepPlan plan = world.plans(model).front();
                CAPTURE(ranks, half, ratio);
                const auto on_disk = static_cast<int64_t>(ratio * trained / ranks);
                CHECK(bytes_in(plan, BufferKind::kGradients, Tier::kMemory) ==
                      4 * (trained / ranks - on_disk));
                // Admission counts fewer moments, master copies and gradients, and more buffers.
                const int64_t element = 8 + (half ? 4 : 0) + 4;
                const HostNeed need = host_need({&plan, 1}, {}, {});
                CHECK((before - need.private_total).value == element * (on_disk - 3 * 16384));
                CHECK(need.disk.value == element * on_disk);
            }
        }
}

TEST_CASE("buffers beyond those in turn keep sums from micro step to micro step") {
    // 12 chunks. With 8 buffers, four are used in turn, and the others keep their chunks.
    World world = clipped_world(3);
    const ModelInfo model = model_of(4);
    const auto bytes_read = [&](int64_t buffers) {
        world.offload.swap_buffers = buffers;
        int64_t sums = 0;
        const StepPlan plan = world.plans(model).front();
        for (const Instruction& instruction : plan.instructions)
            if (instruction.op == Op::kRead && instruction.sum_buffer >= 0) ++sums;
        return sums;
    };
    CHECK(bytes_read(2) == 3 * 12);
    CHECK(bytes_read(4) == 3 * 12);
    CHECK(bytes_read(8) < 3 * 12 - 2 * 3);
    CHECK(bytes_read(8) >= 3 * (12 - 8));
    CHECK(bytes_read(12) == 0);
}

TEST_CASE("packed moments are counted in the bytes that they take on disk") {
    const ModelInfo model = model_of(8);
    const int64_t trained = 7 * kLayerNumel, chunks = trained / 16384;
    for (const StatePacking packing : {StatePacking::kBf16, StatePacking::kInt8})
        for (const bool half : {false, true}) {
            World world;
            world.offload = {true, false, 16384, 3};
            world.offload.packings = {packing, packing};
            world.half = half;
            const StepPlan plan = world.plans(model).front();
            // An element takes two bytes, or one byte and a scale of four bytes for each 256
            // elements.
            const int64_t moment = packing == StatePacking::kBf16 ? 32768 : 16384 + 16384 / 64;
            const int64_t image = round_up((half ? 65536 : 0) + 2 * moment, 4096);
            CHECK(bytes_on_disk(plan, BufferKind::kMoments) == 2 * moment * chunks);
            int64_t written = 0, read = 0;
            for (const Instruction& instruction : plan.instructions) {
                if (instruction.chunk < 0) continue;
                if (instruction.op == Op::kRead) read += instruction.bytes.value;
                if (instruction.op == Op::kWrite) written += instruction.bytes.value;
            }
            CHECK(written == chunks * image);
            CHECK(read == chunks * image);
            // Buffers stay fp32. In addition there are an image and a section for each direction.
            Bytes memory;
            for (const PlanBuffer& buffer : plan.buffers)
                if (buffer.kind == BufferKind::kOffload) memory += buffer.bytes;
            CHECK(memory.value == 3 * 65536 * (half ? 3 : 2) + 2 * (image + 65536));
        }
}

TEST_CASE("parameters that may stay in memory do, trained ones first, and are not read") {
    const ModelInfo model = model_of(8);
    const int64_t chunks_all = 8 * kLayerNumel / 16384;
    for (const int ranks : {1, 2, 4})
        for (const bool half : {false, true})
            for (const int64_t kept : {0, 1, 3, 7, 28, 30, 100}) {
                World world{{ranks}, 3, {true, true, 16384, 2}};
                world.half = half;
                world.offload.parameter_numel_in_memory = kept * 16384 + 5;
                const std::vector<StepPlan> plans = world.plans(model);
                CAPTURE(ranks, half, kept);
                for (const StepPlan& plan : plans) CHECK(plan.hash() == plans.front().hash());
                CHECK(join(check_plans(plans), "; ") == "");
                const StepPlan& plan = plans.front();
                const int64_t stay = std::min(kept, chunks_all / ranks);
                int64_t in_memory = 0, trained = 0;
                for (const StateChunk& chunk : plan.chunks.all) {
                    CHECK(chunk.parameters_in_memory() != chunk.parameters_on_disk());
                    in_memory += chunk.parameters_in_memory() ? 1 : 0;
                    trained += chunk.parameters_in_memory() && chunk.states_on_disk() ? 1 : 0;
                }
                CHECK(in_memory == stay);
                CHECK(trained == std::min(stay, 7 * kLayerNumel / 16384 / ranks));
                const int64_t element = half ? 2 : 4;
                CHECK(bytes_on_disk(plan, BufferKind::kParameters) ==
                      (chunks_all / ranks - stay) * 16384 * element);
                int64_t gathered = 0;
                for (const Instruction& instruction : plan.instructions)
                    if (instruction.op == Op::kRead && instruction.chunk < 0)
                        gathered += instruction.bytes.value;
                if (stay == chunks_all / ranks) CHECK(gathered == 0);
                Rehearsal rehearsal(plan, 3);
                for (int step = 0; step < 3; ++step) REQUIRE(rehearsal.step() == "");
            }
}

TEST_CASE("a plan in which a gather does not wait for parameters in memory is refused") {
    World world{{1}, 3, {false, true, 16384, 2}};
    world.offload.parameter_numel_in_memory = 1 << 30;
    StepPlan plan = world.plans(model_of(4)).front();
    CHECK(plan.chunks.turns.empty());
    REQUIRE(check_plan(plan).empty());
    // The last layer would read the first one's parameters again after its update, if the update
    // waited.
    bool read_after_update = false;
    std::set<int> updated;
    for (const Instruction& instruction : plan.instructions) {
        if (instruction.op == Op::kUpdate)
            updated.insert(instruction.writes.begin(), instruction.writes.end());
        if (instruction.op == Op::kRead)
            for (const int buffer : instruction.reads)
                read_after_update = read_after_update || updated.contains(buffer);
    }
    CHECK_FALSE(read_after_update);
    // Every update waits for the reads of the data that it changes.
    int waits = 0;
    for (const Instruction& instruction : plan.instructions)
        if (instruction.op == Op::kUpdate)
            for (const int wait : instruction.waits)
                waits += plan.instructions[wait].op == Op::kRead ? 1 : 0;
    CHECK(waits > 0);
    for (Instruction& instruction : plan.instructions)
        if (instruction.op == Op::kUpdate) instruction.waits.clear();
    CHECK_FALSE(check_plan(plan).empty());
}

TEST_CASE("the part of the chunks that the ratio leaves in memory is spread over the step") {
    const ModelInfo model = model_of(9);
    for (const double ratio : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        World world;
        world.offload = {true, false, 16384, 2, ratio};
        const StepPlan plan = world.plans(model).front();
        CAPTURE(ratio);
        const int64_t chunks = 8 * kLayerNumel / 16384;
        CHECK(static_cast<double>(plan.chunks.turns.size()) == ratio * static_cast<double>(chunks));
        CHECK(bytes_on_disk(plan, BufferKind::kMoments) ==
              static_cast<int64_t>(ratio * 8 * 8 * kLayerNumel));
    }
}

TEST_CASE("chunks are kept one after the other, spread over the step, the frozen ones last") {
    const ModelInfo model = model_of(9);
    const int64_t chunks = 9 * kLayerNumel / 16384;
    std::set<int> before;
    for (int64_t kept = 0; kept <= chunks; ++kept) {
        World world;
        world.offload = {true, true, 16384, 2};
        world.offload.adaptive = true;
        world.offload.kept_chunks = kept;
        const StateChunks held = world.plans(model).front().chunks;
        world.offload.kept_chunks = 0;
        const std::vector<int> turns = world.plans(model).front().chunks.turns;
        const auto position_of = [&](int c) { return std::ranges::find(turns, c) - turns.begin(); };
        REQUIRE(std::ssize(held.keep_order) == chunks);
        std::set<int> now;
        for (int c = 0; c < static_cast<int>(held.all.size()); ++c)
            if (held.all[c].kept()) now.insert(c);
        CAPTURE(kept);
        CHECK(std::ssize(now) == kept);
        // The choices are nested: if one more chunk is kept, only that chunk moves.
        CHECK(std::ranges::includes(now, before));
        before = now;
        // Kept chunks are spread evenly: of 32 updated chunks, 4 in every 8 if 16 are kept, and so
        // on.
        const int64_t updated = std::min<int64_t>(kept, 32);
        CHECK(std::ssize(held.turns) == 32 - updated);
        for (const int64_t parts : {2, 4, 8, 16, 32}) {
            if (kept % parts != 0 || kept > 32) continue;
            for (int64_t part = 0; part < parts; ++part)
                CHECK(std::ranges::count_if(
                          std::span(held.keep_order).first(static_cast<size_t>(kept)), [&](int c) {
                              return position_of(c) * parts / 32 == part;
                          }) == kept / parts);
        }
        for (int64_t i = 32; i < chunks; ++i) CHECK(held.all[held.keep_order[i]].passes() == false);
    }
}

TEST_CASE("a chunk that the plan chooses is a 64th of what a rank has, within its bounds") {
    // One rank has 64 parameters, which make 64 chunks of 65536.
    const ModelInfo model = model_of(64);
    for (const auto& [chunk_numel_max, expected] :
         {std::pair<int64_t, int64_t>{1 << 30, 65536}, {65535, 65520}, {30001, 30000}}) {
        World world{{1}, 3, {true, true}};
        world.offload.chunk_numel_max = chunk_numel_max;
        int64_t longest = 0;
        const StateChunks chunks = world.plans(model).front().chunks;
        for (const StateChunk& chunk : chunks.all) longest = std::max(longest, chunk.range.numel);
        CAPTURE(chunk_numel_max);
        CHECK(longest == expected);
    }
}

TEST_CASE("what fits into the buffers is neither read nor written in a step") {
    for (const bool clip : {false, true}) {
        World world;
        world.offload = {true, false, 16384, 64};
        world.clip = clip;
        const StepPlan plan = world.plans(model_of(4)).front();
        REQUIRE(plan.chunks.turns.size() == 12);
        CHECK(plan.swap_buffers == 12);
        CHECK(plan.sum_buffers == (clip ? 12 : 0));
        for (const Instruction& instruction : plan.instructions)
            CHECK((instruction.op != Op::kRead && instruction.op != Op::kWrite));
    }
}

TEST_CASE("a size that makes too many chunks is refused with the smallest that does not") {
    // 40 layers of 64 Ki elements, each in a bucket. All but one are trained.
    const ModelInfo model = model_of(40);
    const FlatLayout layout = make_flat_layout(model, {kLayerNumel, 1, true, 0, 64});
    REQUIRE(layout.trained_buckets == 39);
    const Partition partition = make_partition(layout, model, ShardBy::kFlat, 1);
    OffloadPlan offload;
    CHECK(too_many_chunks(layout, nullptr, offload).empty());
    offload.states = true;
    CHECK(too_many_chunks(layout, &partition, offload).empty());
    offload.chunk_numel = 100;  // the plan takes 96: 683 chunks in each bucket
    CHECK(too_many_chunks(layout, &partition, offload) ==
          "dslaunch.offload.chunk_numel: 100 divides the data of a rank into 26637 chunks, but at "
          "most 16384 are allowed; use 160 or more");
    offload.chunk_numel = 160;  // 410 chunks in each bucket
    CHECK(too_many_chunks(layout, &partition, offload).empty());
    offload.chunk_numel = 159;  // the plan takes 144: 456 chunks in each bucket
    CHECK_FALSE(too_many_chunks(layout, &partition, offload).empty());
    // The frozen layer's parameters are on disk too: 40 x 410 are just above.
    offload.parameters = true;
    offload.chunk_numel = 160;
    CHECK_THAT(too_many_chunks(layout, &partition, offload), Catch::EndsWith("use 176 or more"));
    offload.chunk_numel = 0;
    offload.chunk_numel_max = 16;
    CHECK_THAT(too_many_chunks(layout, &partition, offload),
               Catch::StartsWith("zero_optimization.sub_group_size: 16 divides"));
}

}  // namespace dslaunch
