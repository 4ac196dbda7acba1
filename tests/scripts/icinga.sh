# shellcheck shell=bash
# Runs Debian's Icinga 2 with icinga.conf, all that it writes below `icinga`, for 60 s at most or as long as `time` says. Now and then
# it is told to end and hangs: then it is killed, which is 137, and what it wrote last is lost.
mkdir -p icinga/spool
icinga() {
    set -- "$@" -c icinga.conf -DRunAsUser=root -DRunAsGroup=root -DPluginDir="$(dirname "$CHECK")"
    for place in DataDir CacheDir LogDir InitRunDir; do mkdir -p icinga/$place; set -- "$@" -D$place=/run/test/icinga/$place; done
    for file in PidPath StatePath ObjectsPath VarsPath ModAttrPath; do set -- "$@" -D$file=/run/test/icinga/$file; done
    timeout --kill-after 15 "${time:-60}" icinga2 daemon "$@" -DSpoolDir=/run/test/icinga/spool
}
