// The monitors of training jobs: the files of a whole run, the files of a killed and resumed run,
// and a full disk for these files.
#include <cmath>

#include "base/fd.h"
#include "support/saving_job.h"
#include "support/skip.h"
#include "support/small_disk.h"
#include "unit/launch/metrics/event_reader.h"

namespace dslaunch::test {
namespace {

// Adds monitors to JOB, which write below PLACE.
void add_monitors(SavingJob& job, const std::string& place) {
    job.eval_interval = 2;
    job.change = [place](Json& config) {
        config["tensorboard"] = {
            {"enabled", true}, {"output_path", place}, {"job_name", "small_gpt"}};
        config["csv_monitor"] = config["tensorboard"];
        config["dslaunch"]["metrics"]["prometheus"] = place + "/run.prom";
    };
}

// Returns the values of each field of metrics.jsonl by number of samples. If a step was repeated,
// the last value counts.
std::map<std::string, std::map<int64_t, double>> fields_of(const SavingJob& job) {
    std::map<std::string, std::map<int64_t, double>> fields;
    std::ifstream metrics(job.output() + "/metrics.jsonl");
    int64_t samples = 0;
    for (std::string line; std::getline(metrics, line);) {
        const Json row = Json::parse(line);
        samples = row.value("samples", row.at("step") == 0 ? 0 : samples);
        for (const auto& [name, value] : row.items())
            if (value.is_number()) fields[name][samples] = value.get<double>();
    }
    return fields;
}

// Checks that the event files and the CSV files in FOLDER have each point of JOB's metrics.jsonl
// once, in order.
void check_monitors(const SavingJob& job, const std::string& folder) {
    Curves curves = curves_in(folder);
    auto fields = fields_of(job);
    fields["train_loss"] = fields.at("loss");
    for (const char* name :
         {"train_loss", "lr", "eval_loss", "grad_norm", "rss_bytes", "step_ms", "samples_per_s"}) {
        INFO(name);
        const auto& points = fields.at(name);
        const auto& curve = curves[std::string("Train/Samples/") + name];
        REQUIRE(curve.size() == points.size());
        std::string csv = std::string("step,") + name + "\r\n";
        size_t i = 0;
        for (const auto& [samples, value] : points) {
            CHECK(curve[i].first == samples);
            CHECK(curve[i++].second == static_cast<float>(value));
        }
        std::ifstream rows(folder + "/Train_Samples_" + name + ".csv");
        std::string row;
        std::getline(rows, row);
        CHECK(row + "\n" == csv.substr(0, row.size()) + "\n");
        for (const auto& [samples, value] : points) {
            REQUIRE(std::getline(rows, row));
            const size_t comma = row.find(',');
            CHECK(std::stoll(row.substr(0, comma)) == samples);
            CHECK(std::stod(row.substr(comma + 1)) == value);
        }
        CHECK_FALSE(std::getline(rows, row));
    }
    CHECK_FALSE(curves.contains("Train/Samples/loss_scale"));  // the job is in fp32
}

}  // namespace

TEST_CASE("monitors have every step of a run, by DeepSpeed's names and over samples") {
    const TemporaryFolder place;
    SavingJob job;
    add_monitors(job, place.path());
    job.steps = 6;
    JobProcess process(job.folder, job.command(false));
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    const std::string folder = place.path() + "/small_gpt";
    CHECK(process.err().find("tensorboard --logdir " + folder) != std::string::npos);
    check_monitors(job, folder);
    // Each step adds the rows of both ranks. The held-out loss before training is at 0 samples.
    const int64_t rows = 2 * fixture_facts(job.model).at("batch").get<int64_t>();
    const Curves curves = curves_in(folder);
    const auto& losses = curves.at("Train/Samples/train_loss");
    for (size_t i = 0; i < losses.size(); ++i)
        CHECK(losses[i].first == rows * static_cast<int64_t>(i + 1));
    CHECK(curves.at("Train/Samples/eval_loss").front().first == 0);
    const std::string text = place.read("run.prom");
    CHECK(text.find("dslaunch_step{run=\"out\"} 6\n") != std::string::npos);
    CHECK(text.find("dslaunch_running{run=\"out\"} 0\n") != std::string::npos);
}

TEST_CASE("monitors of a run that was killed and resumed have each step once") {
    const TemporaryFolder place;
    SavingJob job;
    add_monitors(job, place.path());
    job.steps = 400;
    {
        JobProcess process(job.folder, job.command(false));
        REQUIRE(wait_until([&] { return job.losses().size() > 8; }));
        kill_one(process, 0);
        static_cast<void>(process.wait());
    }
    const std::string folder = place.path() + "/small_gpt";
    CHECK(curves_in(folder)["Train/Samples/train_loss"].size() > 3);
    const int64_t saved = newest_whole(job.output());
    REQUIRE(saved >= 3);
    // The resumed run repeats every step after the checkpoint, however late the checkpoint was.
    job.steps = job.losses().rbegin()->first + 3;
    JobProcess process(job.folder, job.command(true));
    const int code = process.wait();
    INFO(process.err());
    REQUIRE(code == 0);
    check_monitors(job, folder);
    CHECK(job.losses().rbegin()->first == job.steps);
    CHECK_FALSE(std::filesystem::exists(folder + "/earlier-1"));
}

TEST_CASE("a full disk of the monitors costs one warning and no step") {
    const TemporaryFolder place;
    const std::string disk = place.path() + "/disk";
    if (!mount_small_disk(disk, "size=64k"))
        return report_skipped("a full disk under monitors", "mounting a tmpfs needs root");
    SavingJob job;
    add_monitors(job, disk);
    job.steps = 60;
    JobProcess process(job.folder, job.command(false));
    const int code = process.wait();
    const std::string err = process.err();
    INFO(err);
    CHECK(code == 0);
    CHECK(job.losses().size() == 60);
    const std::string warning = "writing to TensorBoard's event files in " + disk;
    const size_t first = err.find(warning);
    CHECK(first != std::string::npos);
    CHECK(err.find(warning, first + 1) == std::string::npos);
    CHECK(err.find("No space left on device") != std::string::npos);
    // Everything that was written can be read.
    CHECK(!curves_in(disk + "/small_gpt")["Train/Samples/train_loss"].empty());
    CHECK(::umount(disk.c_str()) == 0);
}

}  // namespace dslaunch::test
