// The ladder of choices, for needs that are closed forms of the choice.
#include "plan/choose/memory_choice.h"

#include <optional>
#include <string>
#include <vector>

#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

namespace {

// Returns a made-up need in MiB, less the program's. A job of 4 ranks divides the optimizer's
// states (800) from stage 1 on, gradients (400) from stage 2 on, and parameters (400) from stage 3
// on. States may be on disk from stage 1 on, parameters from stage 3 on. Activations grow with the
// rows; recompute in 4 or more groups leaves a quarter of them.
std::optional<HostNeed> pretended_need(const MemoryChoice& choice) {
    if (choice.optimizer_on_disk && choice.stage < 1) return {};
    if (choice.parameters_on_disk && choice.stage < 3) return {};
    int64_t states = choice.stage >= 1 ? 200 : 800;
    const int64_t gradients = choice.stage >= 2 ? 100 : 400;
    int64_t parameters = choice.stage >= 3 ? 100 : 400;
    if (choice.optimizer_on_disk) states = 20;
    if (choice.parameters_on_disk) parameters = 10;
    const int64_t kept = choice.recompute_groups == 0   ? 100
                         : choice.recompute_groups >= 4 ? 25
                                                        : 50;
    const int64_t own = states + gradients + parameters + kept * choice.micro_rows;
    return HostNeed{1, mib(own), mib(own), mib(own), {}, {}, {}, {}, {}};
}

ChoiceSearch search_with(int64_t room_mib, MemoryChoice from = {0, 0, false, false, 4, 1}) {
    ChoiceSearch search;
    search.from = from;
    search.segments = 8;
    search.limits.memory.limits = {{"MemAvailable", mib(room_mib) + kProgramRoom}};
    search.need_of = pretended_need;
    return search;
}

std::string found(int64_t room_mib) {
    const ChoiceSearch search = search_with(room_mib);
    const std::optional<FittingChoice> nearest = nearest_fitting(search);
    if (!nearest) return "nothing";
    CHECK(nearest->cost.of_host() == pretended_need(nearest->value)->of_host());
    CHECK(all_fit(admit(nearest->cost, search.limits)));
    return nearest->why;
}

}  // namespace

TEST_CASE("the nearest choice is the first rung that fits, without what it does not need") {
    const std::string stage = "zero_optimization.stage: ";
    const std::string recompute = "activation_checkpointing.number_checkpoints: ";
    const std::string states =
        "zero_optimization.offload_optimizer: {device: nvme, nvme_path: FOLDER}";
    const std::string parameters =
        "zero_optimization.offload_param: {device: nvme, nvme_path: FOLDER}";
    // The needs: 2000 at first; by stage 1400, 1100, 800; with recompute 600, 500; states on disk
    // 320; parameters on disk 230; rows 4 to 2 and 1: 180, 155.
    CHECK(found(1400) == stage + "1");
    CHECK(found(1399) == stage + "2");
    CHECK(found(800) == stage + "3");
    CHECK(found(799) == stage + "3, " + recompute + "2");
    CHECK(found(599) == stage + "3, " + recompute + "4");
    CHECK(found(320) == stage + "3, " + recompute + "4, " + states);
    CHECK(found(230) == stage + "3, " + recompute + "4, " + states + ", " + parameters);
    CHECK(
        found(180) ==
        stage + "3, " + recompute + "4, " + states + ", " + parameters +
            ", train_micro_batch_size_per_gpu: 2 (and multiply gradient_accumulation_steps by 2)");
    CHECK(found(155).ends_with(
        "train_micro_batch_size_per_gpu: 1 (and multiply gradient_accumulation_steps by 4)"));
    CHECK(found(154) == "nothing");
}

TEST_CASE("a change that another one makes needless is taken back") {
    // With one rank, no stage divides anything, but recompute makes it fit.
    ChoiceSearch search = search_with(1700);
    search.need_of = [](const MemoryChoice& choice) -> std::optional<HostNeed> {
        const int64_t own = 1600 - choice.stage + (choice.recompute_groups > 0 ? 100 : 400);
        return HostNeed{1, mib(own), mib(own), mib(own), {}, {}, {}, {}, {}};
    };
    const std::optional<FittingChoice> nearest = nearest_fitting(search);
    REQUIRE(nearest);
    CHECK(nearest->value == MemoryChoice{0, 2, false, false, 4, 1});
}

TEST_CASE("more hosts are the last rung: as few as fit") {
    ChoiceSearch search = search_with(400);
    search.from.hosts = 3;
    // 6000 MiB of states, divided by the hosts from stage 3 on, and 50 MiB per row.
    search.need_of = [](const MemoryChoice& choice) -> std::optional<HostNeed> {
        if (choice.optimizer_on_disk || choice.parameters_on_disk) return {};
        const int64_t own =
            (choice.stage == 3 ? 6000 / choice.hosts : 6000) + 50 * choice.micro_rows;
        return HostNeed{1, mib(own), mib(own), mib(own), {}, {}, {}, {}, {}};
    };
    std::optional<FittingChoice> nearest = nearest_fitting(search);
    REQUIRE(nearest);
    CHECK(nearest->value == MemoryChoice{3, 0, false, false, 1, 18});  // 333 + 50, and 17: 352 +
                                                                       // 50
    CHECK_THAT(nearest->why, Catch::EndsWith("18 hosts like these instead of 3"));
    search.limits = search_with(81).limits;  // 192 hosts are tried, with 31 + 50
    nearest = nearest_fitting(search);
    REQUIRE(nearest);
    CHECK(nearest->value.hosts == 188);
    search.limits = search_with(50).limits;
    CHECK_FALSE(nearest_fitting(search));
}

TEST_CASE("the most rows are found, and are those that there are where no more fit") {
    ChoiceSearch search = search_with(2000);
    CHECK(most_rows(search) == 4);
    search = search_with(2370);
    CHECK(most_rows(search) == 7);  // 1600 + 700, and 8 would take 2400
    search = search_with(1 << 20);
    CHECK(most_rows(search) == 4 * 64);  // the search goes no further
}

TEST_CASE("what cannot be run is never proposed") {
    ChoiceSearch search = search_with(320);
    search.need_of = [](const MemoryChoice& choice) -> std::optional<HostNeed> {
        if (choice.optimizer_on_disk || choice.parameters_on_disk) return {};
        return pretended_need(choice);
    };
    // Rows 2 with recompute: 200 + 100 + 100 + 50 = 450 is the least, and with rows 1: 425.
    CHECK_FALSE(nearest_fitting(search));
    search.limits = search_with(425).limits;
    REQUIRE(nearest_fitting(search));
    CHECK(nearest_fitting(search)->value == MemoryChoice{3, 4, false, false, 1, 1});
}

TEST_CASE("advice names what would fit, or says that nothing does, or to make room on the disk") {
    const auto advice = [](const ChoiceSearch& search) {
        const HostNeed need = *search.need_of(search.from);
        return admission_advice(search, admit(need, search.limits));
    };
    CHECK(advice(search_with(1400)) ==
          "with these changes, the job needs only 1.37 GiB of memory: zero_optimization.stage: 1");
    CHECK_THAT(advice(search_with(10)),
               Catch::StartsWith("the job does not fit even with a higher ZeRO stage, recompute, "
                                 "the available offload"));
    ChoiceSearch disk = search_with(9000);
    disk.limits.disks = {{"/a", 1, mib(5), mib(1)}};
    disk.need_of = [](const MemoryChoice&) {
        return HostNeed{1, mib(1), mib(1), mib(1), {}, mib(5), {}, {}, {}};
    };
    CHECK(advice(disk) == "free some space there, or set nvme_path to other folders");
}
