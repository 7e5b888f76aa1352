#!/usr/bin/env bash
# Build the API server, the scheduler and the controllers of Kubernetes, for the tests of that tier,
# into .venv/kubernetes. No package has them, but Debian's source package of the client holds all
# sources with everything that they need. Takes some minutes; does nothing if they are there.
# Needs Go 1.19 and etcd, as in Debian 12.
set -euo pipefail
cd "$(dirname "$0")/.."

POOL=http://deb.debian.org/debian/pool/main
VERSION=1.20.5+really1.20.2
SHA256=b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc
# The one in the sources overwrites memory when it is built with Go 1.18 or newer.
REFLECT=golang-github-modern-go-reflect2
REFLECT_VERSION=1.0.2-2
REFLECT_SHA256=af150a5172cf4c19bb321a53e67103e7fb18d07c1baa1e816a235155265d3948
PROGRAMS=(kube-apiserver kube-scheduler kube-controller-manager)

place=.venv/kubernetes
built="$VERSION $REFLECT_VERSION"
[ "$(cat "$place/version" 2>/dev/null || true)" = "$built" ] && exit 0

exec >&2 </dev/null
here=$PWD
PATH=/usr/lib/go-1.19/bin:$PATH
command -v go >/dev/null || { echo "there is no Go: apt-get install golang-1.19-go"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# get PATH CHECKSUM FILE
get() {
  curl -fsSL --retry 5 -o "$3" "$POOL/$1"
  echo "$2  $3" | sha256sum --check --quiet
}
get "k/kubernetes/kubernetes_$VERSION.orig.tar.gz" "$SHA256" "$scratch/kubernetes.tar.gz"
get "g/$REFLECT/$REFLECT-dev_${REFLECT_VERSION}_all.deb" "$REFLECT_SHA256" "$scratch/reflect.deb"

export GOPATH=$scratch/go GOCACHE=$scratch/cache GO111MODULE=off GOFLAGS=-trimpath
# The compiler takes a third less of the processor's time if it collects less often and inlines nothing.
export GOGC=400
source=$GOPATH/src/k8s.io/kubernetes
mkdir -p "$source"
tar xzf "$scratch/kubernetes.tar.gz" -C "$source" --strip-components=1
dpkg-deb -x "$scratch/reflect.deb" "$scratch/reflect"
reflect=github.com/modern-go/reflect2
rm -r "$source/vendor/$reflect"
cp -r "$scratch/reflect/usr/share/gocode/src/$reflect" "$source/vendor/$reflect"
cd "$source"

# The one part of the sources that is generated: the description of the API.
tagged=$(cd staging/src/k8s.io &&
  grep -rl '+k8s:openapi-gen=' --include='*.go' api apimachinery apiextensions-apiserver apiserver \
    client-go kube-aggregator metrics | xargs -n1 dirname | LC_ALL=C sort -u |
  sed 's,^,k8s.io/kubernetes/vendor/k8s.io/,' | paste -sd,)
go run ./vendor/k8s.io/kube-openapi/cmd/openapi-gen --logtostderr -i "$tagged" \
  -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -o "$GOPATH/src" \
  -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$scratch/violations"

number=${VERSION#*really}
stamp="-X k8s.io/kubernetes/vendor/k8s.io/component-base/version"
go build -o "$scratch/" -gcflags=all=-l -ldflags \
  "-s -w $stamp.gitVersion=v$number $stamp.gitMajor=1 $stamp.gitMinor=20" \
  "${PROGRAMS[@]/#/./cmd/}"
cd "$here"
mkdir -p "$place"
for program in "${PROGRAMS[@]}"; do mv "$scratch/$program" "$place/"; done
"$place/kube-apiserver" --version
echo "$built" >"$place/version"
