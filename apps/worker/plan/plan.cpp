// dsworker plan MODEL: the work and the memory of a training step, for any number of ranks,
// without starting anything.
#include <ATen/Parallel.h>
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "config/resolve/option_overrides.h"
#include "graph/segment/compute_context.h"
#include "job/predict/host_admission.h"
#include "job/predict/job_forecast.h"
#include "job/setup/job_exchange.h"
#include "job/setup/job_layout.h"
#include "job/setup/job_stages.h"
#include "job/setup/job_wire.h"
#include "job/setup/set_up_job.h"
#include "plan/choose/memory_choice.h"
#include "plan/choose/placement.h"
#include "plan/predict/known_devices.h"
#include "plan/print/plan_text.h"
#include "runtime/compute/rank_device.h"
#include "storage/huggingface/named_place.h"
#include "worker/plan/plan_hosts.h"
#include "worker/plan/plan_reports.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

struct PlanArguments {
    job::JobArguments job;
    PlanHosts hosts;
    // The ranks of the job that is set up, by host: all ranks of HOSTS, for a mesh the ranks of its
    // data axis.
    std::vector<int> node_sizes;
    std::string data;
    std::vector<std::string> op_libraries;
    int64_t context = 0;
    std::string device;   // dslaunch.device; empty: as the config says
    std::string compare;  // "shard", "cache"; empty: nothing
    bool forecast = false;
    bool instructions = false;
    bool learning_rate = false;
    int beside_ranks = 0;  // ranks of the host; not 0: this process only measures beside one of
                           // them
    job::TensorRequest tensor;
    int sequence = 0;                       // ranks that share positions; 0: not given
    std::vector<std::string> tensor_rules;  // PATTERN=RULE
    MeshArguments mesh;
    bool json = false;
};

runtime::Topology place_of(const PlanArguments& arguments, int rank) {
    return runtime::Topology::of_rank(arguments.node_sizes, rank);
}

// Returns the first rank of the host with most ranks.
runtime::Topology fullest_place(const PlanArguments& arguments) {
    runtime::Topology place = place_of(arguments, 0);
    const auto fullest = std::ranges::max_element(place.node_sizes);
    place.node_rank = static_cast<int>(fullest - place.node_sizes.begin());
    return place;
}

// Returns the first rank of each host that differs from all hosts before it in the stages of its
// ranks. Without a pipeline, only the first rank of the fullest host.
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

// The admission of a job on hosts like this machine: of the first host on which the job does not
// fit, or else of the host that needs most.
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
        fmt::print("host {} of {} needs most\n", node + 1, arguments.node_sizes.size());
    fmt::print("{} hosts like this machine\n{}",
               plan::all_fit(host.verdicts) ? "fits" : "does not fit",
               plan::admission_table(host.need, host.verdicts));
    const int64_t rows = setup.config().batch.micro_rows;
    if (host.most_rows > rows)
        fmt::print("there is room for micro batches of {}{} rows, {} asked for\n",
                   *host.most_rows < rows * plan::kMostTimes ? "" : "at least ", *host.most_rows,
                   rows == 1 ? "1 is" : fmt::format("{} are", rows));
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

// The forecast of a step on this machine, for the first rank of the fullest host: the others wait
// for it.
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
                 "--flops-rate with --forecast is for a plan of a GPU; segments are measured here");
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
        fmt::print("a step takes at least {:.3g} ms, at the speeds that data sheets or options say",
                   1e3 * forecast.step_s);
    } else {
        fmt::print("a step takes {:.1f} ms here, with {} threads a rank", 1e3 * forecast.step_s,
                   at::get_num_threads());
    }
    if (forecast.beside > 0) fmt::print(", measured by {} at once", forecast.beside + 1);
    for (int lane = 0; lane < plan::kLanes; ++lane)
        if (const double busy_s = forecast.lanes.busy(static_cast<plan::Lane>(lane)); busy_s > 0)
            fmt::print("; {} busy for {:.1f}", plan::lane_name(static_cast<plan::Lane>(lane)),
                       1e3 * busy_s);
    const bool sends = setup.plan.sent().value > 0;
    if (sends && arguments.mesh.link_bytes_per_s <= 0)
        fmt::print("; transfers between {} take no time, for --link-rate is not given",
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
    const std::string& opaque = setup.segmented->lowered().opaque_node;  // its calls: one segment
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

void add_job_options(CommandLine& app, PlanArguments& arguments) {
    app.add("MODEL", arguments.job.model_path,
            "an archive (.pt2, .pt), a Hugging Face folder, or a config.json")
        .required();
    add_host_options(app, arguments.hosts);
    app.add("--config,--deepspeed-config FILE", arguments.job.config_path,
            "ds_config.json; default: the one packed in the model, or beside it");
    app.add("--set KEY=VALUE", arguments.job.overrides,
            "override one value, as optimizer.params.lr=1e-4; repeatable");
    app.add("--data FILE", arguments.data, "training data, where the config names none");
    app.add("--context N", arguments.context,
            "tokens per sample; without data, tokens of this length are assumed")
        .at_least(1);
    app.add("--device NAME", arguments.device, "what the ranks compute on: cpu or cuda")
        .one_of({"cpu", "cuda"});
    app.add("--device-memory SIZE", arguments.mesh.device_memory,
            "the memory of a GPU, as 24GiB, or its name: " + plan::known_devices());
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    app.add("--trust-model", arguments.job.trust_model, kTrustModelHelp);
    app.add("--segments N", arguments.job.segments,
            "pieces to cut the model into, 0: by whole layers");
    app.add("--instructions", arguments.instructions, "list every instruction and every segment");
    app.add("--lr", arguments.learning_rate,
            "draw the learning rate over the steps, in place of the plan");
    app.add("--json", arguments.json, "one JSON object, with the instructions of every rank");
    app.add(job::kMeasureBesideOption, arguments.beside_ranks).hidden();
}

void add_tensor_options(CommandLine& app, PlanArguments& arguments) {
    app.group("instead of the plan, one of");
    app.add(
        "--forecast", arguments.forecast,
        "say what a step takes: segments and updates are measured here, for a GPU "
        "they are timed by the peaks of the one that --device-memory names, or by --flops-rate");
    app.add("--compare WHAT", arguments.compare,
            "shard: bytes and balance of each way of sharding; cache: what "
            "offload moves under other rules and numbers of swap buffers")
        .one_of({"shard", "cache"});
    app.add("--tensor N", arguments.tensor.rules.size, "how so many ranks would share each layer")
        .range(1, 1024);
    app.add("--tensor-rule PATTERN=RULE", arguments.tensor_rules,
            "for parameters whose name fits, `*` for any characters; RULE is "
            "column, row, vocabulary or replicated; repeatable, the first that fits counts")
        .needs("--tensor");
    app.add("--share-positions", arguments.tensor.rules.share_positions,
            "with --tensor: each rank computes its share of the positions between the layers "
            "that are split")
        .needs("--tensor");
    app.add("--sequence N", arguments.sequence,
            "how so many ranks would share the positions of each sample, and exchange them for "
            "heads around attention")
        .range(1, 1024);
    app.add("!--no-check", arguments.tensor.check,
            "with --tensor or --sequence: do not run the model, split and whole, on one batch "
            "in fp64");
}

void print_plan(const job::JobSetup& setup, const PlanArguments& arguments) {
    if (arguments.hosts.named()) fmt::print("{}\n\n", arguments.hosts.text());
    const std::string& opaque = setup.segmented->lowered().opaque_node;
    if (!opaque.empty())
        fmt::print("{} needs the module itself: what it calls stays in one segment\n\n", opaque);
    if (const std::string why = job::shard_text(setup); !why.empty())
        fmt::print("dslaunch.shard auto: {}\n\n", why);
    if (setup.sharing.plan) fmt::print("{}\n\n", job::sharing_text(setup));
    if (const std::string wire = job::wire_text(setup); !wire.empty()) fmt::print("{}\n\n", wire);
    if (setup.place.is_pipeline()) fmt::print("{}\n\nits first rank:\n", job::stages_text(setup));
    print_admission(setup, arguments);
    fmt::print("output: runs/{}-DATE, unless --output names a folder\n",
               storage::run_name(arguments.job.model_path));
    if (arguments.forecast) print_forecast(setup, arguments);
    if (!arguments.forecast)
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
        fmt::print("{} in {} a step of rank {}; --instructions lists all\n",
                   counted(std::ssize(setup.plan.instructions), "instruction"),
                   counted(std::ssize(setup.layout.buckets), "bucket"), setup.plan.rank);
    }
}

void add_mesh_options(CommandLine& app, PlanArguments& arguments) {
    MeshArguments& mesh = arguments.mesh;
    app.add("--stages N", mesh.wish.stages,
            "the model as a pipeline of so many stages, all schedules compared; with "
            "--tensor and --sequence as a mesh")
        .range(1, 4096)
        .excludes("--compare");
    app.add("--search", mesh.search, "the meshes of the ranks that suit hosts and model best")
        .excludes("--compare");
    app.group("with --stages or --search, the rates with --forecast too");
    app.add("--schedule NAME", mesh.schedule,
            "this schedule alone: gpipe, 1f1b, interleaved, zb-h1 or zb-v")
        .one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"});
    app.add("--chunks N", mesh.wish.chunks, "of a stage, with interleaved, default 2").range(1, 64);
    app.add(
           "--micro-batches N", mesh.wish.micro_batches,
           "of a step, default: the config's accumulation steps; with --search of the global batch")
        .range(1, 65536);
    app.add("--cuts LIST", mesh.wish.first_segments,
            "segments at which parts begin, as 3,6,9; default: chosen by cost");
    app.add("--svg FILE", mesh.svg_path, "draw the schedule, or the fastest, into this file");
    app.add("--force", mesh.force, "--svg may replace a file");
    app.add("--simulate N", mesh.simulated_ranks,
            "cost copies of the pipeline on up to so many ranks")
        .range(1, 65536);
    app.add("--flops-rate R", mesh.flops_per_s,
            "FLOP/s of a rank: segments are timed by their FLOPs; default: measured here")
        .positive();
    app.add("--link-rate R", mesh.link_bytes_per_s,
            "bytes/s between two hosts, or two GPUs; default: transfers between them take no time")
        .positive();
    app.add("--rank-memory GIB", mesh.memory_gib, "what a rank has; default: no limit").positive();
    app.add("--host-memory GIB", mesh.host_memory_gib,
            "what a host has, for --search; default: this machine's")
        .positive();
}

// Refuses options that have no meaning for this form of plan.
void check_mesh_options(const CommandLine& app, const MeshArguments& mesh) {
    const bool meshes = mesh.wish.stages > 0 || mesh.search;
    const auto forbid = [&](const char* option, bool has_meaning, const char* needed) {
        if (app.count(option) > 0 && !has_meaning)
            fail(ExitCode::kUsage, "{} needs {}", option, needed);
    };
    for (const char* option : {"--schedule", "--micro-batches"})
        forbid(option, meshes, "--stages or --search");
    for (const char* option : {"--flops-rate", "--link-rate"})
        forbid(option, meshes || app.count("--forecast") > 0, "--stages, --search or --forecast");
    const bool pipelines = mesh.wish.stages > 0 && !mesh.search;
    for (const char* option : {"--chunks", "--simulate", "--rank-memory"})
        forbid(option, pipelines, "--stages without --search");
    const bool alone = pipelines && mesh.tensor.size == 1 && mesh.sequence == 1;
    for (const char* option : {"--cuts", "--svg"})
        forbid(option, alone, "--stages without --search, --tensor and --sequence");
    forbid("--host-memory", mesh.search, "--search");
    forbid("--sequence", meshes || app.count("--tensor") == 0,
           "--stages or --search beside --tensor");
    forbid("--forecast", !meshes && app.count("--compare") + app.count("--tensor") == 0,
           "the plan of a job, without --stages, --search, --tensor and --compare");
}

// Sets the ranks of the job: for a mesh the ranks of its data axis, for a search all of them.
void take_mesh_ranks(PlanArguments& arguments, bool ranks_given) {
    MeshArguments& mesh = arguments.mesh;
    PlanHosts& hosts = arguments.hosts;
    mesh.json = arguments.json;
    arguments.job.plan_meshes = true;
    // A pipeline in the config would be planned a second time.
    for (const char* key : {"dslaunch.pipeline=null", "pipeline=null"})
        arguments.job.overrides.push_back(key);
    const int copy = mesh.search ? 1 : mesh.copy_ranks();
    if (!ranks_given && !hosts.named()) hosts.world_size = copy;
    const auto check = [&](const std::string& what, int ranks) {
        if (ranks % copy != 0)
            fail(ExitCode::kUsage,
                 "{} {}: {} stages x tensor {} x sequence {} need a multiple of "
                 "{} ranks",
                 what, ranks, mesh.wish.stages, mesh.tensor.size, mesh.sequence, copy);
    };
    check(hosts.named() ? "the slots of " + printable(hosts.hostfile) + " are" : "--world-size",
          hosts.world_size);
    check("--simulate", mesh.simulated_ranks);
    if (mesh.simulated_ranks > hosts.ranks_max())
        fail(ExitCode::kUsage,
             "--simulate {}: {} has {} slots; leave the hostfile out, and give --ranks-per-node, "
             "to look at more ranks",
             mesh.simulated_ranks, printable(hosts.hostfile), hosts.ranks_max());
    mesh.hosts = hosts;
    arguments.node_sizes = {hosts.world_size / copy};
}

// Refuses requests that do not fit the config. SHARES: true if ranks share layers or positions.
void check_wish(const job::JobSetup& setup, const MeshArguments& mesh, bool shares) {
    if (setup.on_gpu && (mesh.wish.stages > 1 || shares))
        fail(ExitCode::kConfig,
             "dslaunch.device: cuda: on GPUs this version trains by data parallelism with ZeRO "
             "only; stages and shared layers are planned for CPUs: leave the device out or set it "
             "to cpu");
    if (!setup.on_gpu && !mesh.device_memory.empty())
        fail(ExitCode::kUsage,
             "--device-memory is what a GPU has, and this plan is for CPUs: add --device cuda");
    if (setup.on_gpu && mesh.host_memory_gib > 0)
        fail(ExitCode::kUsage,
             "--host-memory is for ranks that share a host's memory; say what a GPU has with "
             "--device-memory");
    if (setup.sharing.plan && (shares || mesh.search || mesh.wish.stages > 0))
        fail(ExitCode::kUsage,
             "the config shares layers or positions among ranks already (dslaunch.tensor.size, "
             "dslaunch.sequence.size): leave these out of it to ask for other meshes");
}

HelpPage plan_help() {
    return {.does =
                "Prints segments, instructions, memory and bytes moved, without starting "
                "anything. It reads the model, measures it by a pass over one micro batch, and "
                "shows a training step of rank 0: whether it fits, what it takes, memory by kind "
                "and tier, what is read, written and sent.",
            .examples = {"dslaunch plan train.pt --config ds_config.json --world-size 8",
                         "dslaunch plan train.pt --world-size 8 --stages 4 --svg step.svg",
                         "dslaunch plan train.pt --hostfile hostfile --search",
                         "dslaunch plan train.pt --world-size 8 --device cuda "
                         "--device-memory H100"},
            .docs = "docs/scale/plan.md, docs/scale/pipelines.md, docs/scale/tensor-parallel.md"};
}

void override_config(PlanArguments& arguments) {
    std::vector<std::string>& overrides = arguments.job.overrides;
    if (!arguments.op_libraries.empty())
        overrides.push_back(config::op_libraries_override(arguments.op_libraries));
    if (!arguments.device.empty()) overrides.push_back("dslaunch.device=" + arguments.device);
    if (!arguments.data.empty())
        overrides.push_back("dslaunch.data.train=" + json_quote(arguments.data));
    if (arguments.context > 0)
        overrides.push_back(fmt::format("dslaunch.data.context={}", arguments.context));
}

// Prints what ARGUMENTS ask for in SETUP, but for meshes. SHARES: ranks that share layers.
void print_one(const job::JobSetup& setup, PlanArguments& arguments, bool shares) {
    job::check_host_plans(setup, place_of(arguments, 0));
    if (arguments.sequence > 0) {
        arguments.tensor.sequence = true;
        arguments.tensor.rules.size = arguments.sequence;
    }
    if (shares || arguments.tensor.sequence) {
        fmt::print("{}", tensor_report(setup, arguments.tensor, arguments.json));
    } else if (arguments.compare == "shard") {
        fmt::print("{}", compare_shards(setup, arguments.json));
    } else if (arguments.compare == "cache") {
        fmt::print("{}", compare_caches(setup, arguments.json));
    } else if (arguments.json) {
        print_json(setup, arguments);
    } else {
        print_plan(setup, arguments);
    }
}

}  // namespace

int plan_main(int argc, char** argv) {
    PlanArguments arguments;
    CommandLine app(plan_help(), "dslaunch plan");
    add_job_options(app, arguments);
    add_tensor_options(app, arguments);
    add_mesh_options(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    arguments.job.model_path = storage::model_at(arguments.job.model_path);
    for (const std::string& rule : arguments.tensor_rules)
        arguments.tensor.rules.patterns.push_back(parse_tensor_rule_option(rule));
    MeshArguments& mesh = arguments.mesh;
    mesh.tensor = arguments.tensor.rules;
    mesh.tensor_given = app.count("--tensor") > 0;
    mesh.sequence = std::max(1, arguments.sequence);
    check_mesh_options(app, mesh);
    find_plan_hosts(app, arguments.hosts);
    arguments.node_sizes = arguments.hosts.node_sizes(arguments.hosts.world_size);
    if (mesh.wish.stages > 0 || mesh.search)
        take_mesh_ranks(arguments, app.count("--world-size") > 0);
    if (!arguments.mesh.device_memory.empty())
        static_cast<void>(plan::device_room_of(arguments.mesh.device_memory));
    arguments.job.plan_only = true;
    // A plan for a GPU is made on the CPU, and refused if a run would be refused.
    arguments.job.open_device = [](const config::RunConfig& config) {
        if (config.device == config::DeviceChoice::kCuda) runtime::check_gpu_support(config);
        return c10::Device(c10::kCPU);
    };
    override_config(arguments);
    const runtime::Topology place = place_of(arguments, 0);
    std::optional<Progress> progress;
    if (arguments.beside_ranks == 0) progress.emplace("plan", "reading the model");
    arguments.job.begins = [&](std::string_view what) {
        if (progress) progress->begin(what);
    };
    if (arguments.learning_rate) {
        config::RunConfig config = job::config_of_job(arguments.job, place);
        if (config.steps == 0 && (config.epochs > 0 || !config.data.train_path.empty()))
            config = job::set_up_job(arguments.job, place).config();
        progress.reset();
        fmt::print("{}", learning_rate_text(config, arguments.json));
        return 0;
    }
    const job::JobSetup setup = job::set_up_job(arguments.job, place);
    progress.reset();
    if (arguments.beside_ranks > 0) {
        job::measure_beside_rank(setup, arguments.beside_ranks);
        return 0;
    }
    const bool shares = app.count("--tensor") + app.count("--sequence") > 0;
    check_wish(setup, mesh, shares);
    if (mesh.search) {
        print_search(setup, mesh);
        return 0;
    }
    if (mesh.wish.stages > 0) {
        print_pipelines(setup, mesh);
        return 0;
    }
    print_one(setup, arguments, app.count("--tensor") > 0);
    return 0;
}

}  // namespace dslaunch::worker
