// Needs compared with limits, and the nearest choice that fits, in closed forms.
#include "plan/predict/admission.h"

#include <string>
#include <vector>

#include "base/error.h"
#include "plan/choose/memory_choice.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::plan;

namespace {

StepPlan plan_with(Bytes own, Bytes passing, Bytes shared) {
    StepPlan plan;
    plan.buffers = {{"moments", BufferKind::kMoments, Tier::kMemory, own, true},
                    {"activations", BufferKind::kActivations, Tier::kMemory, passing, false},
                    {"parameters", BufferKind::kParameters, Tier::kShared, shared, true}};
    Instruction forward, backward;
    forward.creates = {1};
    backward.frees = {1};
    plan.instructions = {forward, backward};
    return plan;
}

constexpr Bytes kProgram = mib(66);
constexpr Bytes kCode = mib(84);

HostNeed need_of(int64_t private_mib, int64_t arena_mib, int ranks = 1, int64_t disk_mib = 0) {
    const Bytes own = mib(private_mib / ranks);
    return {ranks, mib(private_mib), own,  own + mib(arena_mib), mib(arena_mib), mib(disk_mib),
            {},    kProgram,         kCode};
}

HostLimits limits_of(std::vector<MemoryLimit> limits, Bytes held = {}, int processes = 1) {
    return {{std::move(limits), held}, processes, {}};
}

MemoryLimit host_limit(Bytes left) {
    return {"MemAvailable", left};
}

ExitCode refusal(const HostNeed& need, const HostLimits& limits, std::string& message) {
    try {
        require_admission(need, admit(need, limits), "do this");
    } catch (const Error& error) {
        message = error.what();
        return error.code();
    }
    return ExitCode::kOk;
}

}  // namespace

TEST_CASE("a host needs its ranks' own memory, one arena, and the program") {
    const std::vector<StepPlan> plans = {plan_with(mib(10), mib(3), mib(50)),
                                         plan_with(mib(20), mib(4), mib(50))};
    const HostNeed need = host_need(plans, mib(60), {mib(70), mib(80)});
    CHECK(need.ranks == 2);
    CHECK(need.private_total == mib(37));
    CHECK(need.private_max == mib(24));
    CHECK(need.disk == Bytes{});
    CHECK(need.of_host() == mib(97) + (mib(70) + kProgramLater + kProgramRoom) * 2);
    CHECK(need.of_rank() == mib(84) + mib(150) + kProgramLater + kCodeLater);
}

TEST_CASE("a need is admitted up to the limit to the byte, and no byte beyond") {
    const HostNeed need = need_of(100, 200);
    const Bytes exact = mib(300) + kProgram + kProgramRoom;
    CHECK(all_fit(admit(need, limits_of({host_limit(exact)}))));
    CHECK_FALSE(all_fit(admit(need, limits_of({host_limit(exact - Bytes{1})}))));
    // Bytes that the ranks already hold when the limits are read are available to them.
    CHECK(all_fit(admit(need, limits_of({host_limit(exact - mib(60))}, mib(30), 2))));
    CHECK_FALSE(all_fit(admit(need, limits_of({host_limit(exact - mib(60))}, mib(30), 1))));
}

TEST_CASE("the limit that is hit first is named, whichever comes first") {
    const std::vector<MemoryLimit> limits = {{"memory.max of control group /a", mib(700)},
                                             {"memory.max of control group /", mib(600)},
                                             {"MemAvailable", mib(800)}};
    const std::vector<TierVerdict> verdicts = admit(need_of(100, 100), limits_of(limits, mib(5)));
    REQUIRE(verdicts.size() == 1);
    CHECK(verdicts[0].limit == mib(605));
    CHECK(verdicts[0].limited_by == "memory.max of control group /");
    CHECK(admit(need_of(1, 1), limits_of({}))[0].fits());
    CHECK_FALSE(admit(need_of(1, 1), limits_of({}))[0].limit);
}

TEST_CASE("limits of a process count one rank: without the arena, or with it and all mapped") {
    const HostNeed need = need_of(400, 300, 4);
    const Bytes own = mib(100) + kProgram + kProgramRoom + kProgramStacks;
    const auto with = [&](Bytes data, Bytes space) {
        return admit(need, limits_of({host_limit(gib(9)),
                                      {"RLIMIT_AS", space, LimitOf::kAddressSpace},
                                      {"RLIMIT_DATA", data, LimitOf::kPrivate}}));
    };
    CHECK(all_fit(with(own, own + mib(300))));
    const std::vector<TierVerdict> data = with(own - Bytes{1}, gib(9));
    REQUIRE(data.size() == 3);
    CHECK_FALSE(data[1].fits());
    CHECK(data[1].limited_by == "RLIMIT_DATA");
    CHECK(data[2].fits());
    CHECK_FALSE(with(gib(9), own + mib(299))[2].fits());
}

TEST_CASE("what goes to disk is striped over folders, and folders on one disk share its room") {
    HostLimits limits = limits_of({host_limit(gib(9))});
    limits.disks = {{"/a", 1, mib(1000), mib(100)},
                    {"/b", 2, mib(400), mib(100)},
                    {"/a2", 1, mib(1000), mib(100)}};
    const std::vector<TierVerdict> fits = admit(need_of(1, 1, 1, 900), limits);
    REQUIRE(fits.size() == 3);
    CHECK(fits[1].name == "disk /a, /a2");
    CHECK(fits[1].need == mib(600));
    CHECK(fits[1].limit == mib(900));
    CHECK(fits[2].name == "disk /b");
    CHECK(fits[2].need == mib(300));
    CHECK(all_fit(fits));
    std::string message;
    CHECK(refusal(need_of(1, 1, 1, 903), limits, message) == ExitCode::kDisk);
    CHECK_THAT(message, Catch::Contains("disk /b: 301.0 MiB needed by 1 rank, but only 300.0 MiB "
                                        "available (400.0 MiB free, minus 100.0 MiB reserve)"));
    CHECK(admit(need_of(1, 1), limits).size() == 1);
}

TEST_CASE("too little memory is the code for a machine that lacks something, with the numbers") {
    std::string message;
    CHECK(refusal(need_of(200, 100, 2), limits_of({host_limit(mib(300))}), message) ==
          ExitCode::kSetup);
    CHECK(message ==
          "the job does not fit on this host: memory: 444.0 MiB needed by 2 ranks, but only 300.0 "
          "MiB available (MemAvailable); do this");
    CHECK(refusal(need_of(200, 100), limits_of({host_limit(gib(1))}), message) == ExitCode::kOk);
}

TEST_CASE("the table and the JSON say need and limit of each tier") {
    const HostNeed need = need_of(100, 200, 1, 50);
    HostLimits limits = limits_of({host_limit(mib(300))});
    limits.disks = {{"/d", 1, mib(60), mib(1)}};
    const std::vector<TierVerdict> verdicts = admit(need, limits);
    CHECK(
        admission_table(need, verdicts) ==
        "1 rank of a host                need       limit\n"
        "memory                     372.0 MiB   300.0 MiB  TOO LITTLE: MemAvailable\n"
        "disk /d                     50.0 MiB    59.0 MiB  60.0 MiB free, minus 1.0 MiB "
        "reserve\n"
        "the memory consists of 100.0 MiB private to the ranks, 200.0 MiB shared, and 72.0 MiB for "
        "the program\n");
    JsonWriter json;
    begin_admission_json(need, verdicts, json);
    json.end_object();
    CHECK(json.text() ==
          "{\"ranks\": 1, \"fits\": false, \"private_bytes\": 104857600, \"arena_bytes\": "
          "209715200, \"program_bytes\": 75497472, \"disk_bytes\": 52428800, \"device_bytes\": 0, "
          "\"tiers\": [{\"tier\": \"memory\", \"need_bytes\": 390070272, \"limit_bytes\": "
          "314572800, \"limited_by\": \"MemAvailable\", \"fits\": false}, {\"tier\": \"disk /d\", "
          "\"need_bytes\": 52428800, \"limit_bytes\": 61865984, \"limited_by\": \"60.0 MiB free, "
          "minus 1.0 MiB reserve\", \"fits\": true}]}");
}

TEST_CASE("the estimate is set beside what was measured") {
    CHECK(estimate_text("a rank", need_of(350, 500).of_rank(), mib(980)) ==
          "memory of a rank: 1000.0 MiB estimated, 980.0 MiB measured at most, 0.98 of it");
}
