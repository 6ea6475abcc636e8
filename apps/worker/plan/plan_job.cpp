#include "worker/plan/plan_job.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/json.h"
#include "job/predict/host_admission.h"
#include "job/predict/job_forecast.h"
#include "job/setup/job_exchange.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_wire.h"
#include "job/setup/set_up_job.h"
#include "plan/choose/memory_choice.h"
#include "plan/choose/placement_control.h"
#include "plan/predict/known_devices.h"
#include "plan/print/plan_text.h"
#include "storage/huggingface/named_place.h"

namespace dslaunch::worker {
namespace {

// Returns the place of the first rank on the host that has the most ranks.
runtime::Topology fullest_place(const PlanArguments& arguments) {
    runtime::Topology place = place_of(arguments, 0);
    const auto fullest = std::ranges::max_element(place.node_sizes);
    place.node_rank = static_cast<int>(fullest - place.node_sizes.begin());
    return place;
}

// Returns the first rank of each host, but leaves out hosts with the same stages as an earlier
// host. Without a pipeline, returns only the first rank of the fullest host.
std::vector<runtime::Topology> places_unlike(const job::JobSetup& setup,
                                             const PlanArguments& arguments) {
    if (!setup.place.is_pipeline()) return {fullest_place(arguments)};
    std::set<std::vector<int>> seen;
    std::vector<runtime::Topology> places;
    runtime::Topology place = place_of(arguments, 0);
    for (int node = 0; node < place.node_count(); ++node) {
        place.node_rank = node;
        std::vector<int> stages;
        for (int local = 0; local < place.local_world_size(); ++local) {
            runtime::Topology rank = place;
            rank.local_rank = local;
            stages.push_back(job::place_in_stages(setup.config(), rank).stage);
        }
        if (seen.insert(stages).second) places.push_back(place);
    }
    return places;
}

// The result of the memory check for one host of a job. The host is the first one on which the job
// does not fit or, if the job fits on all hosts, the one that needs the most memory. Assumes that
// all hosts are like this machine.
struct PlannedAdmission {
    job::HostAdmission host;
    int node = 0;
};

PlannedAdmission admit_here(const job::JobSetup& setup, const PlanArguments& arguments) {
    const Progress progress("plan", "comparing with this machine's memory");
    job::AdmissionOptions options;
    if (!arguments.mesh.device_memory.empty())
        options.device = plan::device_room_of(arguments.mesh.device_memory);
    options.finds_most_rows = true;
    std::optional<PlannedAdmission> most;
    for (const runtime::Topology& place : places_unlike(setup, arguments)) {
        PlannedAdmission one;
        one.node = place.node_rank;
        one.host = place.node_rank == 0
                       ? job::admit_host(setup, place, options)
                       : job::admit_host(job::seen_from(setup, place), place, options);
        const bool fits = plan::all_fit(one.host.verdicts);
        if (!most || !fits || one.host.need.of_host() > most->host.need.of_host())
            most = std::move(one);
        if (!fits) break;
    }
    return *most;
}

void print_admission(const job::JobSetup& setup, const PlanArguments& arguments) {
    const auto [host, node] = admit_here(setup, arguments);
    if (setup.place.is_pipeline() && arguments.node_sizes.size() > 1)
        fmt::print("host {} of {} needs the most memory\n", node + 1, arguments.node_sizes.size());
    fmt::print("{} hosts like this machine\n{}",
               plan::all_fit(host.verdicts) ? "fits" : "does not fit",
               plan::admission_table(host.need, host.verdicts));
    const int64_t rows = setup.config().batch.micro_rows;
    if (host.most_rows > rows)
        fmt::print("there is room for micro batches of {}{} rows; the config asks for {}\n",
                   *host.most_rows < rows * plan::kMostTimes ? "" : "at least ", *host.most_rows,
                   rows);
    if (!host.advice.empty())
        fmt::print("a run on hosts like this machine would be refused: {}\n", host.advice);
}

void admission_json(const job::JobSetup& setup, const PlanArguments& arguments, JsonWriter& json) {
    json.key("admission");
    const auto [host, node] = admit_here(setup, arguments);
    plan::begin_admission_json(host.need, host.verdicts, json);
    json.field("node", node).field("advice", host.advice);
    json.key("most_rows").raw(host.most_rows ? std::to_string(*host.most_rows) : "null");
    json.end_object();
}

// The forecast of a step on this machine. It is made for the first rank of the fullest host,
// because the other ranks wait for that host.
struct Forecast {
    double step_s = 0;
    plan::StepTimes lanes;
    int beside = 0;
};

job::HostRates host_rates(const job::JobSetup& setup, const PlanArguments& arguments, int ranks) {
    const MeshArguments& given = arguments.mesh;
    if (!setup.on_gpu) {
        if (given.flops_per_s > 0)
            fail(ExitCode::kUsage,
                 "--flops-rate can be used with --forecast only for a GPU; for CPUs, segments are "
                 "measured on this machine");
        return job::measure_host_rates(setup, ranks, given.link_bytes_per_s);
    }
    return {.rates = rates_of_gpu(setup, given), .beside = 0};
}

Forecast forecast_here(const job::JobSetup& setup, const PlanArguments& arguments) {
    const Progress progress("plan", "measuring the time of a step");
    const runtime::Topology place = fullest_place(arguments);
    const job::HostRates host = host_rates(setup, arguments, place.local_world_size());
    const job::JobSetup own = job::seen_from(setup, place);
    const std::vector<plan::InstructionSpan> spans =
        job::forecast_step(own.plan, own, place, host.rates);
    const double step_s = plan::end_of({&spans, 1});
    return {step_s, plan::step_times(own.plan, spans, step_s), host.beside};
}

void print_forecast(const job::JobSetup& setup, const PlanArguments& arguments) {
    const Forecast forecast = forecast_here(setup, arguments);
    if (setup.on_gpu) {
        fmt::print("a step takes at least {:.3g} ms at the speeds from data sheets or options",
                   1e3 * forecast.step_s);
    } else {
        fmt::print("a step takes {:.1f} ms on this machine with {} threads per rank",
                   1e3 * forecast.step_s, at::get_num_threads());
    }
    if (forecast.beside > 0) fmt::print(", measured by {} ranks at once", forecast.beside + 1);
    for (int lane = 0; lane < plan::kLanes; ++lane)
        if (const double busy_s = forecast.lanes.busy(static_cast<plan::Lane>(lane)); busy_s > 0)
            fmt::print("; {} busy for {:.1f} ms", plan::lane_name(static_cast<plan::Lane>(lane)),
                       1e3 * busy_s);
    const bool sends = setup.plan.sent().value > 0;
    if (sends && arguments.mesh.link_bytes_per_s <= 0)
        fmt::print("; transfers between {} count as 0 ms, because --link-rate is not given",
                   setup.on_gpu ? "GPUs" : "hosts");
    fmt::print("\n");
}

void forecast_json(const job::JobSetup& setup, const PlanArguments& arguments, JsonWriter& json) {
    const Forecast forecast = forecast_here(setup, arguments);
    json.key("forecast").begin_object().field("step_s", forecast.step_s);
    if (!setup.on_gpu)
        json.field("threads", at::get_num_threads()).field("beside", forecast.beside);
    json.key("busy_s").begin_object();
    for (int lane = 0; lane < plan::kLanes; ++lane)
        json.field(plan::lane_name(static_cast<plan::Lane>(lane)),
                   forecast.lanes.busy(static_cast<plan::Lane>(lane)));
    json.end_object().end_object();
}

void print_json(const job::JobSetup& setup, const PlanArguments& arguments) {
    JsonWriter json;
    const int ranks = place_of(arguments, 0).world_size();
    json.begin_object().field("world_size", ranks).key("node_sizes").begin_array();
    for (const int node : arguments.node_sizes) json.value(node);
    json.end_array()
        .field("parameters", setup.model_info.parameter_numel())
        .field("trainable_parameters", setup.model_info.trainable_numel());
    // If a node uses the module object itself, all calls of this module stay in one segment.
    const std::string& opaque = setup.segmented->lowered().opaque_node;
    json.key("opaque_node").raw(opaque.empty() ? "null" : json_quote(opaque));
    json.key("segments").begin_array();
    for (const plan::SegmentInfo& segment : setup.model_info.segments) {
        json.begin_object().field("name", segment.name).field("nodes", segment.nodes);
        json.field("output_bytes", segment.output_bytes.value)
            .field("activation_bytes", segment.activation_bytes.value);
        json.field("forward_flops", segment.forward_flops).field("backward", segment.backward);
        json.key("parameters").begin_array();
        for (const int parameter : segment.parameters)
            json.value(setup.model_info.parameters[parameter].name);
        json.end_array().end_object();
    }
    json.end_array().key("ranks").begin_array();
    for (int rank = 0; rank < ranks; ++rank) {
        const job::JobSetup own = job::seen_from(setup, place_of(arguments, rank));
        plan::plan_json(own.plan, own.info, own.layout, json);
    }
    json.end_array();
    json.key("exchanges");
    job::phases_json(job::step_phases(setup), json);
    admission_json(setup, arguments, json);
    if (arguments.forecast) forecast_json(setup, arguments, json);
    json.end_object();
    fmt::print("{}\n", json.text());
}

void print_tables(const job::JobSetup& setup, const PlanArguments& arguments) {
    if (arguments.hosts.named()) fmt::print("{}\n\n", arguments.hosts.text());
    const std::string& opaque = setup.segmented->lowered().opaque_node;
    if (!opaque.empty())
        fmt::print(
            "{} takes a whole module as an argument, so everything that this call runs stays in "
            "one segment\n\n",
            opaque);
    if (const std::string why = job::shard_text(setup); !why.empty())
        fmt::print("dslaunch.shard auto: {}\n\n", why);
    if (setup.sharing.plan) fmt::print("{}\n\n", job::sharing_text(setup));
    if (const std::string wire = job::wire_text(setup); !wire.empty()) fmt::print("{}\n\n", wire);
    if (setup.place.is_pipeline()) fmt::print("{}\n\nits first rank:\n", job::stages_text(setup));
    print_admission(setup, arguments);
    fmt::print("output: runs/{}-DATE, unless --output names a folder\n",
               storage::run_name(arguments.job.model_path));
    if (arguments.forecast) print_forecast(setup, arguments);
    if (!arguments.forecast && setup.estimate.empty())
        fmt::print("time of a step: --forecast {} it\n",
                   setup.on_gpu ? "predicts" : "measures and predicts");
    fmt::print("{}\n{}\n", plan::plan_summary(setup.plan),
               plan::segments_table(setup.info, /*is_folded=*/!arguments.instructions));
    const std::vector<job::StepPhase> phases = job::step_phases(setup);
    for (const std::string& table :
         {job::exchange_table(setup, phases), job::lag_table(setup, phases)})
        if (!table.empty()) fmt::print("{}\n", table);
    if (arguments.instructions) {
        for (const job::StepPhase& phase : phases) {
            if (phases.size() > 1) fmt::print("{}:\n", job::phase_title(phase));
            fmt::print("{}", plan::instructions_table(phase.plan, setup.info, setup.layout));
        }
    } else {
        fmt::print("a step of rank {} has {} and {}; --instructions lists the instructions\n",
                   setup.plan.rank, counted(std::ssize(setup.plan.instructions), "instruction"),
                   counted(std::ssize(setup.layout.buckets), "bucket"));
    }
}

}  // namespace

void print_plan(const job::JobSetup& setup, const PlanArguments& arguments) {
    if (arguments.json) {
        print_json(setup, arguments);
    } else {
        print_tables(setup, arguments);
    }
}

}  // namespace dslaunch::worker
