"""Lists of what the wheel needs and of what an image contains, in CycloneDX (https://cyclonedx.org)."""

import hashlib
import json
import uuid
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from typing import Final

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from hack.release.components import Package
from hack.release.locks import required_names
from hack.release.settings import Release

_NAME: Final = "ddpjob"
_LICENSE: Final = "Apache-2.0"
_EXTRA: Final = "ddpjob:extra"
_MARKER: Final = "ddpjob:marker"
_IMAGE_ID: Final = "ddpjob:image-id"
# A namespace of our own for serial numbers: the same contents have the same one.
_SERIALS: Final = uuid.uuid5(uuid.NAMESPACE_DNS, "ddpjob.dev")


def wheel_sbom(
    wheel: bytes, packages: Sequence[Package], required_by: Mapping[str, AbstractSet[str]], release: Release
) -> str:
    """The wheel and the versions of what its extras need, as JSON.

    Args:
        wheel: the file.
        packages: what it needs.
        required_by: for each name of a package, the names of those that require it.
        release: what is released.
    """
    root = Component(
        name=_NAME,
        version=release.version,
        type=ComponentType.LIBRARY,
        bom_ref=f"pkg:pypi/{_NAME}@{release.version}",
        purl=PackageURL("pypi", None, _NAME, release.version),
        licenses=[LicenseFactory().make_from_string(_LICENSE)],
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=hashlib.sha256(wheel).hexdigest())],
    )
    direct = required_names(wheel, {extra for package in packages for extra in package.extras})
    components = [_component(package) for package in packages]
    bom = _bom(root, components, release)
    bom.register_dependency(root, [each for each in components if each.name in direct])
    for parent in components:
        bom.register_dependency(parent, [each for each in components if parent.name in required_by[each.name]])
    return _written(bom)


def image_sbom(name: str, packages: Sequence[Package], release: Release, identity: str = "") -> str:
    """An image and what is installed in it, as JSON.

    Args:
        name: of the image, without its tag.
        packages: what is installed in it.
        release: what is released.
        identity: the id of the image, such as sha256:0123, which another build of the same version does not have; ""
            leaves it out.
    """
    reference = f"{name}:{release.version}"
    root = Component(
        name=name,
        version=release.version,
        type=ComponentType.CONTAINER,
        bom_ref=reference,
        properties=[Property(name=_IMAGE_ID, value=identity)] if identity else [],
    )
    components = [_component(package) for package in packages]
    bom = _bom(root, components, release)
    bom.register_dependency(root, components)
    document = json.loads(_written(bom))
    # They would say that no package requires another one, which is not known here, and not true.
    del document["dependencies"]
    return f"{json.dumps(document, indent=2)}\n"


def _bom(root: Component, components: Sequence[Component], release: Release) -> Bom:
    identity = [
        str(root.bom_ref.value),
        str(release.epoch),
        *(each.content for each in root.hashes),
        *(str(each.value) for each in root.properties),
        *(str(component.bom_ref.value) for component in components),
    ]
    return Bom(
        components=components,
        serial_number=uuid.uuid5(_SERIALS, "\n".join(identity)),
        metadata=BomMetaData(component=root, timestamp=datetime.fromtimestamp(release.epoch, UTC)),
    )


def _component(package: Package) -> Component:
    properties = [Property(name=_EXTRA, value=extra) for extra in sorted(package.extras)]
    properties += [Property(name=_MARKER, value=package.marker)] if package.marker else []
    return Component(
        name=package.name,
        version=package.version,
        type=ComponentType.LIBRARY,
        # A version that two markers select is two components.
        bom_ref=f"{package.purl}#{package.marker}" if package.marker else str(package.purl),
        purl=package.purl,
        properties=properties,
    )


def _written(bom: Bom) -> str:
    text: str = JsonV1Dot6(bom).output_as_string(indent=2)
    return f"{text}\n"
