// The memory of GPUs in plans and in admission.
#include "base/error.h"
#include "plan/choose/memory_choice.h"
#include "plan/predict/admission.h"
#include "plan/predict/known_devices.h"
#include "plan/step/plan_check.h"
#include "plan/step/step_plan.h"
#include "support/catch.h"
#include "support/text_tools.h"

namespace dslaunch {

using namespace plan;

namespace {

ModelInfo four_segments() {
    ModelInfo model;
    for (int s = 0; s < 4; ++s) {
        SegmentInfo segment;
        segment.name = std::to_string(s);
        segment.parameters = {s};
        segment.output_bytes = mib(1);
        segment.activation_bytes = mib(5);
        segment.backward = true;
        model.parameters.push_back({segment.name, 1 << 20, 4, true});
        model.segments.push_back(segment);
    }
    return model;
}

StepPlan plan_of(int stage, bool on_device) {
    const ModelInfo model = four_segments();
    static const FlatLayout layout = make_flat_layout(model, {1 << 20, 1});
    static const Partition partition = make_partition(layout, model, ShardBy::kFlat, 2);
    StepPlanOptions options;
    options.stage = stage;
    options.world_size = 2;
    options.node_sizes = {1, 1};
    options.partition = &partition;
    options.on_device = on_device;
    return make_step_plan(model, layout, options);
}

Bytes peak(const StepPlan& plan, Tier tier) {
    return peak_by_tier(plan)[static_cast<size_t>(tier)].peak;
}

}  // namespace

TEST_CASE("a device's plan has all in the device's memory, as much as a host's plan has") {
    for (int stage = 0; stage <= 3; ++stage) {
        INFO("stage " << stage);
        const StepPlan device = plan_of(stage, true), host = plan_of(stage, false);
        CHECK(peak(device, Tier::kMemory) == Bytes{});
        CHECK(peak(device, Tier::kShared) == Bytes{});
        CHECK(peak(host, Tier::kDevice) == Bytes{});
        CHECK(device.instructions.size() == host.instructions.size());
        // The host's arena keeps its bytes all the time, so the peaks add up.
        CHECK(peak(device, Tier::kDevice) == peak(host, Tier::kMemory) + peak(host, Tier::kShared));
    }
    CHECK(peak(plan_of(3, true), Tier::kDevice) < peak(plan_of(0, true), Tier::kDevice));
}

TEST_CASE("a GPU's memory is admitted beside the host's, with LibTorch's own on top") {
    const StepPlan plan = plan_of(0, true);
    StepPlanOptions options;
    options.on_device = true;
    CHECK(device_extra(options) == kDeviceWorkspaces + kDeviceBlocks);
    options.world_size = 8;
    CHECK(device_extra(options) == kDeviceWorkspaces + kDeviceBlocks + kDeviceGroup);
    options.shard_group = 2;
    CHECK(device_extra(options) == kDeviceWorkspaces + kDeviceBlocks + kDeviceGroup * 3);
    const HostNeed need = host_need({&plan, 1}, {}, {mib(60), mib(80)}, device_extra(options));
    CHECK(need.device == peak(plan, Tier::kDevice) + device_extra(options));
    CHECK(need.arena == Bytes{});
    HostLimits limits;
    std::vector<TierVerdict> verdicts = admit(need, limits);
    CHECK(verdicts.back().tier == TierVerdict::Tier::kDevice);
    CHECK(verdicts.back().fits());  // nobody knows better
    limits.device = DeviceRoom{need.device, "a GPU"};
    CHECK(all_fit(admit(need, limits)));
    limits.device->left = need.device - Bytes{1};
    verdicts = admit(need, limits);
    CHECK_FALSE(all_fit(verdicts));
    try {
        require_admission(need, verdicts, "advice");
        FAIL("it is admitted");
    } catch (const Error& error) {
        CHECK(error.code() == ExitCode::kSetup);
        CHECK_THAT(error.what(), Catch::Contains("memory of a GPU") && Catch::Contains("a GPU"));
    }
}

TEST_CASE("the advice for a GPU that is too small is the nearest stage that fits it") {
    ChoiceSearch search;
    search.limits.device = DeviceRoom{mib(500), "a GPU"};
    search.need_of = [](const MemoryChoice& choice) -> std::optional<HostNeed> {
        if (choice.optimizer_on_disk || choice.parameters_on_disk) return {};
        HostNeed need;
        need.device = mib(900 - 150 * choice.stage);
        return need;
    };
    const HostNeed now = *search.need_of(search.from);
    CHECK(admission_advice(search, admit(now, search.limits)) ==
          "with these changes, the job needs only 450.0 MiB of a GPU's memory: "
          "zero_optimization.stage: 3");
    search.limits.device->left = mib(100);
    CHECK_THAT(admission_advice(search, admit(now, search.limits)),
               Catch::EndsWith("use GPUs with more memory"));
}

TEST_CASE("the advice for a GPU job whose host is too small is what the host needs less for") {
    ChoiceSearch search;
    search.limits.device = DeviceRoom{gib(1), "a GPU"};
    search.limits.memory.limits = {{"MemAvailable", mib(100), LimitOf::kHost}};
    search.from.micro_rows = 4;
    search.need_of = [](const MemoryChoice& choice) -> std::optional<HostNeed> {
        if (choice.optimizer_on_disk || choice.parameters_on_disk) return {};
        HostNeed need;
        need.device = mib(900);  // it stays, whatever is chosen
        need.private_total = mib(40 * choice.micro_rows);
        return need;
    };
    const HostNeed now = *search.need_of(search.from);
    CHECK_THAT(admission_advice(search, admit(now, search.limits)),
               Catch::Contains("train_micro_batch_size_per_gpu: 2"));
}

TEST_CASE("a GPU's memory is a size or the name of one that is known") {
    CHECK_THAT(test::error_of(ExitCode::kUsage, [] { (void)device_room_of("24"); }),
               Catch::Contains("`24` is 24 bytes: write 24GiB"));
    CHECK(device_room_of("24GiB").left == gib(24));
    CHECK(device_room_of("24G").left == gib(24));
    CHECK(device_room_of("512m").left == mib(512));
    CHECK(device_room_of("h100").left < gib(80));
    CHECK(device_room_of("H100").left > gib(78));
    for (const char* bad : {"", "0", "-1G", "H900", "24 apples", "iB"}) {
        INFO(bad);
        CHECK_THROWS_AS(device_room_of(bad), Error);
    }
}

TEST_CASE("a GPU's speeds are known by the driver's exact name, or the one that users write") {
    CHECK(rates_of_device("NVIDIA H200").flops_per_s(DType::kF32, false) == 67e12);
    CHECK(rates_of_device("NVIDIA H100 80GB HBM3").flops_per_s(DType::kF32, true) == 494.5e12);
    CHECK(rates_of_device("h200").flops_per_s(DType::kBF16, false) == 989.5e12);
    CHECK(rates_of_device("A100-80GB").flops_per_s(DType::kF16, true) == 312e12);
    CHECK(rates_of_device("H200").memory_bytes_per_s == 4.8e12);
    for (const char* other : {"NVIDIA H100 PCIe", "NVIDIA H200 NVL", "", "fake", "24GiB"})
        CHECK(rates_of_device(other).flops_per_s(DType::kF32, false) == 0);
}

}  // namespace dslaunch
