# few images, because the examples train networks on them
shapes images --count 90
packimg convert images/train -o train.pimg
packimg convert images/val -o val.pimg
