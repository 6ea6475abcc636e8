#include "launcher/hosts/device_report_json.h"

namespace dslaunch::launcher {

void device_report_fields(const launch::DeviceUseReport& report,
                          const std::function<std::string(const launch::DeviceProcess&)>& job_of,
                          JsonWriter& json) {
    json.field("note", report.note).key("gpus").begin_array();
    for (const launch::Gpu& gpu : report.gpus) {
        json.begin_object().field("index", gpu.index).field("name", gpu.name);
        json.field("memory_bytes", gpu.memory_bytes).field("used_bytes", gpu.used_bytes);
        json.field("uuid", gpu.uuid).field("driver", gpu.driver);
        json.field("ecc_errors", gpu.ecc_errors).field("nvlinks", gpu.nvlinks);
        json.field("pcie_generation", gpu.pcie_generation).field("pcie_lanes", gpu.pcie_lanes);
        json.field("pcie_lanes_max", gpu.pcie_lanes_max).end_object();
    }
    json.end_array().key("processes").begin_array();
    for (const launch::DeviceProcess& process : report.processes) {
        json.begin_object().field("pid", process.name.pid).field("user", process.user);
        json.field("own", process.is_own).field("command", process.command);
        json.field("age_s", process.age_s).field("job_id", job_of(process));
        json.field("rank", process.rank).key("gpus").begin_array();
        for (const launch::GpuHold& hold : process.holds)
            json.begin_object().field("index", hold.gpu).field("bytes", hold.bytes).end_object();
        json.end_array().end_object();
    }
    json.end_array();
}

}  // namespace dslaunch::launcher
