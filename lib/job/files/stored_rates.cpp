#include "job/files/stored_rates.h"

#include "base/error.h"
#include "storage/disk/disk_facts.h"
#include "storage/swap/io_settings.h"

namespace dslaunch::job {

plan::DiskRates stored_rates(const config::OffloadConfig& config) {
    plan::DiskRates rates;
    for (const std::string& folder : config.nvme_paths) {
        std::string id;
        try {
            id = storage::disk_facts(folder).id;
        } catch (const Error&) {
            return {};  // a plan may be for other machines, so the folder need not exist here
        }
        const auto stored = storage::stored_io_settings(storage::io_settings_path(), id);
        if (!stored || stored->read_bytes_per_s <= 0 || stored->write_bytes_per_s <= 0) return {};
        rates.read_bytes_per_s += stored->read_bytes_per_s;
        rates.write_bytes_per_s += stored->write_bytes_per_s;
    }
    return rates;
}

}  // namespace dslaunch::job
