#include "worker/plan/plan_reports.h"

#include <ATen/Parallel.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/machine/memory_limits.h"
#include "base/machine/program_memory.h"
#include "base/new_files.h"
#include "base/screen.h"
#include "base/terminal/progress.h"
#include "graph/measure/measure.h"
#include "job/predict/job_forecast.h"
#include "job/setup/job_layout.h"
#include "job/setup/trial_batch.h"
#include "plan/choose/stage_choice.h"
#include "plan/mesh/mesh.h"
#include "plan/predict/admission.h"
#include "plan/predict/known_devices.h"
#include "plan/print/pipeline_text.h"
#include "storage/disk/output_place.h"

namespace dslaunch::worker {
namespace {

constexpr int kTableRanksMax = 64;
constexpr int kTensorSizeMax = 16;

Bytes from_gib(double gibibytes) {
    return Bytes{static_cast<int64_t>(gibibytes * static_cast<double>(gib(1).value))};
}

plan::TensorCosts tensor_costs(const plan::TensorPlan& plan) {
    plan::TensorCosts costs;
    for (const plan::TensorParameter& parameter : plan.parameters)
        costs.split.push_back(parameter.rule != plan::TensorRule::kReplicated);
    costs.forward = plan.forward_bytes();
    costs.backward = plan.backward_bytes();
    return costs;
}

// Returns the tensor-parallel sizes that the model allows and that fit on a host. Writes their
// costs into REQUEST.
std::vector<int> tensor_sizes(const job::JobSetup& setup, const MeshArguments& arguments,
                              plan::MeshRequest& request) {
    if (arguments.tensor_given) return {arguments.tensor.size};
    std::vector<int> sizes{1};
    const int most = *std::max_element(request.node_sizes.begin(), request.node_sizes.end());
    for (int size = 2; size <= std::min(most, kTensorSizeMax); size *= 2) {
        plan::TensorRules rules = arguments.tensor;
        rules.size = size;
        try {
            const plan::TensorPlan plan = find_tensor_plan(setup, rules);
            request.tensor = tensor_costs(plan);
        } catch (const Error&) {
            continue;  // the model's graph forbids this size
        }
        sizes.push_back(size);
    }
    return sizes;
}

plan::MeshChoice choice_for(const plan::MeshRequest& request, const MeshArguments& arguments) {
    plan::MeshChoice choice;
    const int ranks = std::accumulate(request.node_sizes.begin(), request.node_sizes.end(), 0);
    choice.sizes = {arguments.tensor.size, arguments.sequence, ranks / arguments.copy_ranks(), 0,
                    arguments.wish.stages};
    choice.micro_batches = arguments.wish.micro_batches;
    choice.zero_stage = request.options.stage;
    choice.recompute = request.options.recompute_groups > 0;
    return choice;
}

// Returns the number of ranks on each host. A GPU counts as a host with one rank.
std::vector<int> node_sizes_of(const job::JobSetup& setup, const MeshArguments& arguments,
                               int ranks) {
    return setup.on_gpu ? std::vector<int>(static_cast<size_t>(ranks), 1)
                        : arguments.hosts.node_sizes(ranks);
}

std::string mesh_table(const plan::MeshRequest& request, const plan::MeshChoice& choice) {
    const plan::Mesh mesh = plan::Mesh::make(choice.sizes, request.node_sizes);
    return mesh.world_size() > 1 && mesh.world_size() <= kTableRanksMax ? "\n" + mesh.table() : "";
}

std::string config_of(const job::JobSetup& setup, const plan::MeshChoice& choice) {
    return plan::mesh_config(choice, setup.config().batch.micro_rows,
                             setup.model_info.segments.size());
}

// Returns the memory that one host has for the ranks of a mesh. On GPUs, returns the memory of one
// GPU, because a search treats each GPU as a host with one rank.
Bytes host_memory(const job::JobSetup& setup, const MeshArguments& arguments) {
    if (setup.on_gpu) {
        if (!arguments.device_memory.empty())
            return plan::device_room_of(arguments.device_memory).left;
        fail(ExitCode::kUsage,
             "--search: the memory of a GPU is not known: set --device-memory to a size (24GiB) or "
             "to the GPU's name ({})",
             plan::known_devices());
    }
    if (arguments.host_memory_gib > 0) return from_gib(arguments.host_memory_gib);
    // This process is not part of the job, so the memory that it uses counts as free.
    const MemoryState here = read_memory_state();
    std::optional<Bytes> least;
    for (const MemoryLimit& limit : here.limits)
        if (limit.of == LimitOf::kHost && (!least || limit.left + here.held < *least))
            least = limit.left + here.held;
    if (!least)
        fail(ExitCode::kConfig, "the memory of this machine is not known: set --host-memory");
    return *least;
}

plan::MeshSearch search_for(const job::JobSetup& setup, const MeshArguments& arguments,
                            plan::MeshRequest& request) {
    plan::MeshSearch search;
    if (arguments.wish.stages > 0) search.pipeline_sizes = {arguments.wish.stages};
    if (setup.on_gpu) {
        search.pipeline_sizes = {1};  // only data parallelism; ZeRO stages are compared
        search.each_zero_stage = true;
    } else {
        search.tensor_sizes = tensor_sizes(setup, arguments, request);
    }
    search.sequence_sizes = {arguments.sequence};
    if (!arguments.schedule.empty()) search.schedules = {*schedule_named(arguments.schedule)};
    search.chunks = arguments.wish.chunks;
    const plan::OffloadPlan& offload = request.options.offload;
    if (offload.states) search.zero_stages = {1, 2, 3};
    if (offload.parameters) search.zero_stages = {3};
    const config::BatchConfig& batch = setup.config().batch;
    search.micro_batches = arguments.wish.micro_batches > 0 ? arguments.wish.micro_batches
                                                            : batch.train_rows / batch.micro_rows;
    search.host_memory_max = host_memory(setup, arguments);
    return search;
}

// Returns the name of the unit whose memory a mesh must fit in.
std::string_view room_of(const job::JobSetup& setup) {
    return setup.on_gpu ? "GPU" : "host";
}

[[noreturn]] void refuse(const job::JobSetup& setup, const plan::MeshSearch& search,
                         const plan::MeshFindings& found, int ranks) {
    if (!found.smallest)
        fail(ExitCode::kConfig,
             "no mesh of {} ranks is possible: the data-parallel ranks must divide the {} micro "
             "batches of the global batch evenly, and each stage needs a segment; change the "
             "number of ranks or of micro batches",
             ranks, search.micro_batches);
    const plan::MeshChoice& choice = found.smallest->choice;
    fail(ExitCode::kConfig,
         "all {} meshes of {} ranks need more memory than a {} has ({}): the smallest mesh, "
         "pipeline {} x data {} x tensor {} x sequence {} with ZeRO {}{}, needs {}; use more {}, "
         "fewer rows in a micro batch{}",
         found.looked_at, ranks, room_of(setup), to_text(*search.host_memory_max),
         choice.sizes.pipeline, choice.sizes.data, choice.sizes.tensor, choice.sizes.sequence,
         choice.zero_stage, choice.recompute ? " and recompute" : "",
         to_text(found.smallest->cost.host), setup.on_gpu ? "GPUs" : "hosts",
         setup.on_gpu ? ", or weights in 16 bits" : ", or offload to disk");
}

}  // namespace

job::JobRates rates_of_gpu(const job::JobSetup& setup, const MeshArguments& arguments) {
    std::optional<job::JobRates> rates =
        job::rates_on_gpu(setup, plan::rates_of_device(arguments.device_memory),
                          {arguments.flops_per_s, arguments.link_bytes_per_s});
    if (!rates)
        fail(ExitCode::kUsage,
             "the segments of a plan for a GPU cannot be timed on this machine: name the GPU with "
             "--device-memory ({}), or set the FLOP/s of a rank with --flops-rate",
             plan::known_devices());
    return std::move(*rates);
}

namespace {

// Returns one line that says where the times come from.
std::string times_text(const job::JobSetup& setup, const MeshArguments& arguments) {
    const std::string link =
        arguments.link_bytes_per_s > 0
            ? fmt::format("transfers at {:.4g} GB/s", arguments.link_bytes_per_s / 1e9)
            : "transfers count as 0 s, because --link-rate is not given";
    if (setup.on_gpu && arguments.flops_per_s <= 0)
        return fmt::format("times are lower bounds from the peak rates of {}; {}",
                           arguments.device_memory, link);
    if (arguments.flops_per_s > 0)
        return fmt::format(
            "times are computed from FLOPs at {:.4g} TFLOP/s, updates count as 0 s; {}",
            arguments.flops_per_s / 1e12, link);
    return fmt::format("times are measured on this machine with {} {}; {}", at::get_num_threads(),
                       at::get_num_threads() == 1 ? "thread" : "threads", link);
}

// Returns the request for the costs of meshes of SETUP's job on hosts like this machine. Segments
// and updates are measured here with the threads of a rank, unless ARGUMENTS give a rank's FLOP/s.
// RANKS fill the hosts one after the other. On GPUs, each rank is a host by itself, and
// rates_of_gpu() gives the times. Throws what rates_of_gpu and find_tensor_plan throw.
plan::MeshRequest mesh_request(const job::JobSetup& setup, const MeshArguments& arguments,
                               int ranks) {
    plan::MeshRequest request;
    request.model = setup.model_info;
    request.options = setup.plan_options;
    request.layout = job::layout_options(setup.config(), /*stage=*/3);
    request.node_sizes = node_sizes_of(setup, arguments, ranks);
    if (setup.on_gpu) {
        request.program = plan::device_extra(setup.plan_options);
        if (!arguments.device_memory.empty())
            request.rank_memory_max =
                plan::device_room_of(arguments.device_memory).left - request.program;
        job::JobRates rates = rates_of_gpu(setup, arguments);
        request.times = std::move(rates.segments);
        request.rates = rates.machine;
        return request;
    }
    // The program's memory is counted in the same way as in admission.
    request.program = read_program_memory().own + plan::kProgramLater + plan::kProgramRoom;
    const Progress progress("plan", "measuring segments");
    // The measurement includes the memory that is kept between the two halves of a backward pass.
    request.model =
        graph::measure(*setup.segmented, job::trial_batch(setup), /*split_backward=*/true);
    if (arguments.flops_per_s > 0) {
        request.times = plan::times_from_flops(request.model, arguments.flops_per_s);
    } else {
        const int most = *std::max_element(request.node_sizes.begin(), request.node_sizes.end());
        job::JobRates rates =
            job::measure_host_rates(setup, most, arguments.link_bytes_per_s).rates;
        request.times = std::move(rates.segments);
        request.rates = rates.machine;
    }
    request.rates.link_bytes_per_s = arguments.link_bytes_per_s;
    if (arguments.memory_gib > 0) request.rank_memory_max = from_gib(arguments.memory_gib);
    if (arguments.tensor.size > 1)
        request.tensor = tensor_costs(find_tensor_plan(setup, arguments.tensor));
    return request;
}

// Returns the mesh that the user asked for, with the given schedule or, if none is given, with each
// schedule. The mesh with the shortest step comes first. Throws Error{kConfig} if no schedule is
// possible.
std::vector<plan::MeshFinding> find_meshes(const plan::MeshRequest& request,
                                           const MeshArguments& arguments) {
    plan::MeshChoice choice = choice_for(request, arguments);
    std::vector<plan::MeshFinding> found;
    std::string why_not;
    for (const ScheduleKind kind : kScheduleKinds) {
        if (!arguments.schedule.empty() && schedule_named(arguments.schedule) != kind) continue;
        choice.schedule = kind;
        choice.chunks = plan::chunks_of(kind, arguments.wish);
        try {
            found.push_back({choice, plan::mesh_cost(request, choice)});
        } catch (const Error& error) {
            why_not = error.what();
        }
    }
    if (found.empty()) fail(ExitCode::kConfig, "{}", why_not);
    std::ranges::stable_sort(found, {}, [](const plan::MeshFinding& of) { return of.cost.step_s; });
    return found;
}

// Returns FOUND as text: the costs of each mesh, the details of the first mesh, and its table of
// ranks if it has at most 64 ranks.
std::string meshes_text(const plan::MeshRequest& request,
                        const std::vector<plan::MeshFinding>& found) {
    return fmt::format("{}\n{}{}", plan::meshes_table(found, terminal_columns(STDOUT_FILENO)),
                       plan::mesh_details(found.front()),
                       mesh_table(request, found.front().choice));
}

// Returns the costs of 1, 2, 4, … copies of the model with CHOICE, up to the number of ranks to
// simulate. Returns an empty list if that number was not given.
std::vector<plan::MeshFinding> simulate_copies(const job::JobSetup& setup,
                                               plan::MeshRequest request, plan::MeshChoice choice,
                                               const MeshArguments& arguments) {
    std::vector<plan::MeshFinding> found;
    const int copies_max = arguments.simulated_ranks / arguments.copy_ranks();
    for (int64_t copies = 1; copies_max > 0; copies = std::min<int64_t>(2 * copies, copies_max)) {
        choice.sizes.data = static_cast<int>(copies);
        request.node_sizes =
            node_sizes_of(setup, arguments, choice.sizes.data * arguments.copy_ranks());
        found.push_back({choice, plan::mesh_cost(request, choice)});
        if (copies == copies_max) break;
    }
    return found;
}

std::string copies_text(const std::vector<plan::MeshFinding>& copies) {
    return "copies of the first mesh:\n" +
           plan::meshes_table(copies, terminal_columns(STDOUT_FILENO));
}

void findings_json(const std::vector<plan::MeshFinding>& found, JsonWriter& json) {
    json.begin_array();
    for (const plan::MeshFinding& finding : found) plan::mesh_json(finding, json);
    json.end_array();
}

// Returns the costs of the segments for one rank of a stage.
plan::StageRequest costs_of(const plan::MeshRequest& mesh, const MeshArguments& arguments) {
    plan::StageRequest costs = plan::make_stage_request(mesh.model, mesh.options, mesh.times);
    costs.link_bytes_per_s = arguments.link_bytes_per_s;
    costs.memory_max = mesh.rank_memory_max;
    return costs;
}

// The costs of the meshes that the ranks can form, and of several copies of the first mesh.
struct Meshes {
    std::vector<plan::MeshFinding> found;
    std::vector<plan::MeshFinding> copies;
};

void print_text(const std::vector<plan::PipelineOption>& options, const plan::PipelineOption& shown,
                const plan::MeshRequest& mesh, const Meshes& meshes, const job::JobSetup& setup,
                const MeshArguments& arguments) {
    fmt::print("{} segments in {} stages, {} micro batches of {} rows in a step\n{}\n\n{}\n",
               setup.model_info.segments.size(), arguments.wish.stages,
               arguments.wish.micro_batches, setup.config().batch.micro_rows,
               times_text(setup, arguments), plan::schedules_table(options));
    fmt::print("stages of {}, with the times of a micro batch's forward and backward:\n{}",
               schedule_name(shown.kind), plan::stages_table(shown, setup.model_info));
    fmt::print(
        "\ncosts of whole steps, with gradient sums, updates and the programs' own memory:\n{}",
        meshes_text(mesh, meshes.found));
    if (!meshes.copies.empty()) {
        fmt::print("\n{}", copies_text(meshes.copies));
        const int most = arguments.simulated_ranks / arguments.wish.stages;
        const int shard = plan::largest_shard_on_hosts(
            {1, 1, most, 0, 1}, arguments.hosts.node_sizes(arguments.simulated_ranks));
        fmt::print("copies on one host that can shard the states among them: {}\n", shard);
    }
}

void print_pipelines_json(const std::vector<plan::PipelineOption>& options,
                          const plan::PipelineOption& shown, const Meshes& meshes,
                          const job::JobSetup& setup, const MeshArguments& arguments) {
    JsonWriter json;
    json.begin_object().field("stages", arguments.wish.stages);
    json.field("micro_batches", arguments.wish.micro_batches);
    json.field("copies", setup.plan_options.world_size);
    json.field("segments", setup.model_info.segments.size());
    json.field("times", arguments.flops_per_s > 0 ? "flops" : "measured");
    json.field("threads", at::get_num_threads());
    json.field("link_bytes_per_s", arguments.link_bytes_per_s);
    json.field("shown", schedule_name(shown.kind));
    json.key("schedules");
    plan::schedules_json(options, setup.model_info, json);
    json.key("meshes");
    findings_json(meshes.found, json);
    if (!meshes.copies.empty()) {
        json.key("simulated");
        findings_json(meshes.copies, json);
    }
    json.end_object();
    fmt::print("{}\n", json.text());
}

void print_meshes(const job::JobSetup& setup, const MeshArguments& arguments) {
    const int ranks = setup.plan_options.world_size * arguments.copy_ranks();
    const plan::MeshRequest request = mesh_request(setup, arguments, ranks);
    const std::vector<plan::MeshFinding> found = find_meshes(request, arguments);
    const std::vector<plan::MeshFinding> copies =
        simulate_copies(setup, request, found.front().choice, arguments);
    if (arguments.json) {
        JsonWriter json;
        json.begin_object().field("threads", at::get_num_threads()).key("meshes");
        findings_json(found, json);
        json.key("simulated");
        findings_json(copies, json);
        json.key("config").raw(config_of(setup, found.front().choice)).end_object();
        fmt::print("{}\n", json.text());
        return;
    }
    fmt::print("{}\n\n{}", times_text(setup, arguments), meshes_text(request, found));
    if (!copies.empty()) fmt::print("\n{}", copies_text(copies));
}

}  // namespace

void print_pipelines(const job::JobSetup& setup, MeshArguments arguments) {
    if (!arguments.svg_path.empty()) storage::require_new_file(arguments.svg_path, arguments.force);
    if (arguments.wish.micro_batches == 0)
        arguments.wish.micro_batches = static_cast<int>(setup.config().batch.accumulation_steps);
    if (!arguments.schedule.empty()) arguments.wish.schedule = schedule_named(arguments.schedule);
    // If ranks also share layers or positions, the pipeline is not shown separately.
    if (arguments.tensor.size > 1 || arguments.sequence > 1) return print_meshes(setup, arguments);
    const int ranks = setup.plan_options.world_size * arguments.wish.stages;
    const plan::MeshRequest mesh = mesh_request(setup, arguments, ranks);
    const std::vector<plan::PipelineOption> options =
        plan::pipeline_options(costs_of(mesh, arguments), arguments.wish);
    const int fastest = plan::fastest_of(options);
    if (fastest < 0) fail(ExitCode::kConfig, "{}", options.front().why_not);
    const plan::PipelineOption& shown = options[fastest];
    if (!arguments.svg_path.empty())
        write_file_atomically(arguments.svg_path, plan::timeline_svg(plan::pipeline_timeline(
                                                      shown.schedule, shown.run)));
    Meshes meshes{find_meshes(mesh, arguments), {}};
    meshes.copies = simulate_copies(setup, mesh, meshes.found.front().choice, arguments);
    if (arguments.json) {
        print_pipelines_json(options, shown, meshes, setup, arguments);
    } else {
        print_text(options, shown, mesh, meshes, setup, arguments);
    }
}

void print_search(const job::JobSetup& setup, const MeshArguments& arguments) {
    const int ranks = setup.plan_options.world_size;
    plan::MeshRequest request = mesh_request(setup, arguments, ranks);
    const plan::MeshSearch search = search_for(setup, arguments, request);
    const plan::MeshFindings found = plan::search_meshes(request, search);
    if (found.best.empty()) refuse(setup, search, found, ranks);
    const std::string config = config_of(setup, found.best.front().choice);
    if (arguments.json) {
        JsonWriter json;
        json.begin_object().field("looked_at", found.looked_at).field("fitting", found.fitting);
        json.field("micro_batches", search.micro_batches);
        json.field(setup.on_gpu ? "device_memory_bytes" : "host_memory_bytes",
                   search.host_memory_max->value);
        json.field("threads", at::get_num_threads()).key("best");
        findings_json(found.best, json);
        json.key("config").raw(config).end_object();
        fmt::print("{}\n", json.text());
        return;
    }
    fmt::print(
        "{} of {} meshes of {} ranks fit in the memory of a {} ({}), with {} micro batches of {} "
        "rows\n{}\n\n{}\nconfig of the first mesh:\n{}\n",
        found.fitting, found.looked_at, ranks, room_of(setup), to_text(*search.host_memory_max),
        search.micro_batches, setup.config().batch.micro_rows, times_text(setup, arguments),
        meshes_text(request, found.best), config);
}

}  // namespace dslaunch::worker
