//! CPU quota and memory limit that cgroups (v1 and v2) set for the process.

use std::fs;
use std::path::{Path, PathBuf};

/// Returns the CPU quota that cgroups set for this process, as a number of processors. Returns `None` if no
/// cgroup sets a quota.
pub fn processor_quota() -> Option<f64> {
    quota(Path::new("/"))
}

/// Returns the memory limit that cgroups set for this process, in bytes. Returns `None` if no cgroup sets a
/// limit.
pub fn memory_limit() -> Option<u64> {
    memory(Path::new("/"))
}

/// Returns the CPU quota of this process. `root` is the folder that contains `proc` and the mount points of
/// the cgroup file systems: `/` except in tests.
fn quota(root: &Path) -> Option<f64> {
    least(root, "cpu", quota_v1, quota_v2)
}

/// Returns the memory limit of this process in bytes. `root` has the same meaning as in [`quota`].
fn memory(root: &Path) -> Option<u64> {
    let read = |folder: &Path, name: &str| -> Option<u64> {
        fs::read_to_string(folder.join(name)).ok()?.trim().parse().ok()
    };
    // Version 1 represents the absence of a limit by a huge number, version 2 by the word `max`.
    let v1 = |folder: &Path| read(folder, "memory.limit_in_bytes").filter(|limit| *limit < 1 << 60);
    least(root, "memory", v1, |folder| read(folder, "memory.max"))
}

/// Returns the lowest limit that the cgroups of this process and their ancestors set through `controller`.
/// `v1` reads the limit from the folder of a cgroup v1, and `v2` from the folder of a cgroup v2.
fn least<T: PartialOrd>(
    root: &Path,
    controller: &str,
    v1: impl Fn(&Path) -> Option<T>,
    v2: impl Fn(&Path) -> Option<T>,
) -> Option<T> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let mut least = None;
    for group in groups.lines().filter_map(Group::parse) {
        let mount = mounts.lines().filter_map(Mount::parse).find(|mount| group.is_on(mount, controller));
        let Some(mount) = mount else { continue };
        for folder in folders(root, &mount, group.path) {
            let limit = if group.controllers.is_empty() { v2(&folder) } else { v1(&folder) };
            if let Some(limit) = limit
                && least.as_ref().is_none_or(|least| limit < *least)
            {
                least = Some(limit);
            }
        }
    }
    least
}

/// A line of `/proc/self/cgroup`, such as `4:cpu,cpuacct:/a/b`. The line of cgroup v2 lists no controllers.
struct Group<'a> {
    controllers: &'a str,
    path: &'a str,
}

impl Group<'_> {
    fn parse(line: &str) -> Option<Group<'_>> {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        Some(Group { controllers, path })
    }

    /// Returns true if `mount` is the cgroup file system through which `controller` limits this cgroup.
    fn is_on(&self, mount: &Mount<'_>, controller: &str) -> bool {
        let has_controller = |list: &str| list.split(',').any(|name| name == controller);
        match self.controllers {
            "" => mount.kind == "cgroup2",
            list => has_controller(list) && mount.kind == "cgroup" && has_controller(mount.options),
        }
    }
}

/// A line of `/proc/self/mountinfo`. Its columns are: number, parent, device, root, mount point, options, optional
/// fields, `-`, kind, source, options.
struct Mount<'a> {
    root: &'a str,
    place: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl Mount<'_> {
    fn parse(line: &str) -> Option<Mount<'_>> {
        let (front, back) = line.split_once(" - ")?;
        let mut front = front.split(' ').skip(3);
        let (root, place) = (front.next()?, front.next()?);
        let mut back = back.split(' ');
        let (kind, _source, options) = (back.next()?, back.next()?, back.next().unwrap_or_default());
        Some(Mount { root, place, kind, options })
    }
}

/// Returns the folders of the cgroup `group` and of its ancestors, up to the mount point of the cgroup file
/// system.
fn folders(root: &Path, mount: &Mount<'_>, group: &str) -> Vec<PathBuf> {
    // A container may see its own group as the root of the mount.
    let below = match Path::new(group).strip_prefix(mount.root) {
        Ok(below) if !group.contains("..") => below,
        _ => Path::new(""),
    };
    let top = root.join(mount.place.trim_start_matches('/'));
    below.ancestors().map(|part| top.join(part)).collect()
}

/// Reads the CPU quota of a cgroup v2, as a number of processors. The file `cpu.max` contains quota and
/// period, such as `150000 100000`, or `max 100000` if there is no limit.
fn quota_v2(folder: &Path) -> Option<f64> {
    let text = fs::read_to_string(folder.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    ratio(quota, period)
}

/// Reads the CPU quota of a cgroup v1, as a number of processors. The file `cpu.cfs_quota_us` contains the
/// quota, or -1 if there is no limit; `cpu.cfs_period_us` contains the period.
fn quota_v1(folder: &Path) -> Option<f64> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    ratio(&read("cpu.cfs_quota_us")?, &read("cpu.cfs_period_us")?)
}

fn ratio(quota: &str, period: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<u64>().ok().filter(|n| *n > 0).map(|n| n as f64);
    Some(number(quota)? / number(period)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary folder that tests use as the root of the file system; removed on drop.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Root {
            let root = std::env::temp_dir().join(format!("anyfn-cgroup-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Root(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const V2: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn version_2_takes_the_least_of_the_groups_above() {
        let root = Root::new(
            "v2",
            &[
                ("proc/self/cgroup", "0::/a/b/c\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"),
                ("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n"),
                ("sys/fs/cgroup/a/cpu.max", "400000 100000\n"),
                // Not an ancestor.
                ("sys/fs/cgroup/a/other/cpu.max", "1000 100000\n"),
            ],
        );
        assert_eq!(quota(&root.0), Some(1.5));
    }

    #[test]
    fn version_2_in_a_container_that_sees_its_group_as_the_root() {
        let mounts = "29 22 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n";
        let files = [
            ("proc/self/cgroup", "0::/docker/x/y\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/cpu.max", "300000 100000\n"),
            ("sys/fs/cgroup/y/cpu.max", "50000 100000\n"),
        ];
        assert_eq!(quota(&Root::new("docker", &files).0), Some(0.5));
        // The path of the group is not below the mount, as after entering the container from outside.
        let mut outside = files;
        outside[0].1 = "0::/../elsewhere\n";
        assert_eq!(quota(&Root::new("outside", &outside).0), Some(3.0));
    }

    #[test]
    fn version_1_has_two_files_and_a_mount_of_its_own() {
        let mounts = "30 25 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let files = [
            ("proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/job\n"),
            ("proc/self/mountinfo", mounts),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(quota(&Root::new("v1", &files).0), Some(2.5));
    }

    #[test]
    fn memory_of_both_versions() {
        let v2 = Root::new(
            "memory-v2",
            &[
                ("proc/self/cgroup", "0::/a/b\n"),
                ("proc/self/mountinfo", V2),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/memory.max", "268435456\n"),
                ("sys/fs/cgroup/a/cpu.max", "50000 100000\n"),
            ],
        );
        assert_eq!((memory(&v2.0), quota(&v2.0)), (Some(268_435_456), Some(0.5)));
        let mounts = "30 25 0:27 / /cg/memory rw - cgroup cgroup rw,memory\n\
                      31 25 0:28 / /cg/cpu rw - cgroup cgroup rw,cpu\n";
        let mut files = [
            ("proc/self/cgroup", "5:memory:/m\n4:cpu:/job\n"),
            ("proc/self/mountinfo", mounts),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/m/memory.limit_in_bytes", "1048576\n"),
        ];
        let v1 = Root::new("memory-v1", &files);
        assert_eq!((memory(&v1.0), quota(&v1.0)), (Some(1 << 20), None));
        files[3].1 = "9223372036854771712\n";
        assert_eq!(memory(&Root::new("memory-none", &files).0), None);
        assert_eq!(memory(Path::new("/nowhere/at/all")), None);
    }

    #[test]
    fn no_limit_no_files_and_nonsense_limit_nothing() {
        assert_eq!(quota(Path::new("/nowhere/at/all")), None);
        for (name, text) in [("max", "max 100000\n"), ("empty", ""), ("text", "x y\n"), ("zero", "0 0\n")] {
            let files =
                [("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", V2), ("sys/fs/cgroup/cpu.max", text)];
            assert_eq!(quota(&Root::new(name, &files).0), None, "{name}");
        }
        let odd = [("proc/self/cgroup", "nonsense\n:\n0::\n"), ("proc/self/mountinfo", "- \n1 2\n - a\n")];
        assert_eq!(quota(&Root::new("odd", &odd).0), None);
    }
}
